"""ALT's joint search (ALT §5): templates of layouts, proposals of a learned actor, layouts and loops searched together."""
