"""In a branch: answers from the recording, in place of the world outside."""
