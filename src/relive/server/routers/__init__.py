"""The routes, one noun a file. They turn requests into parameters and give results back; what takes long they take on as tasks."""
