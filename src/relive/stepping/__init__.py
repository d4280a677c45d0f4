"""A recorded request again, followed line by line in the Python process itself: values at a line, writes of a value.

``relive_stepper`` runs in the processes of a sealed branch; ``following`` puts it there and reads what it saw.
"""
