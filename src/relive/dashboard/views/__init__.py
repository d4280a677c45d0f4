"""One page a file; Streamlit runs the file of the page that is looked at as a script. (It has a meaning of its own for "pages".)"""
