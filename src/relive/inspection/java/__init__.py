"""What a Java process says of itself, by the mechanism that jcmd and jstack use (attach)."""
