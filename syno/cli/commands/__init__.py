"""What can be typed after ``syno``: names, options, help. All of it is imported for ``syno --help``, so at the top only what is quick."""
