"""A debugger in a branch, at a failure or where its request begins."""
