"""Relive for people with a browser: pages over the operations, served by Streamlit (the optional extra ``dashboard``)."""
