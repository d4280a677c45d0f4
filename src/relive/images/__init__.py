"""Reading and editing CRIU's image files."""
