"""Reports of judged files: pairs, items and groups, on the terminal and as one HTML file."""
