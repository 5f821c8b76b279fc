"""What is timed, beside what, and what is predicted instead."""
