"""What all rooms use: arguments, files, numbers as text, progress, random streams. It knows nothing of operators."""
