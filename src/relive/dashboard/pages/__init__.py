"""One page a file; Streamlit runs the file of the page that is looked at as a script."""
