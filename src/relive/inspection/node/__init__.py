"""What a Node.js process says of itself, by V8's inspector, which it opens when it gets SIGUSR1."""
