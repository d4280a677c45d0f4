/* Starting processes in a new PID namespace, in their control groups from their first moment. */
#pragma once

/* Serves the orders of --start (see init.c), until the other side hangs up. Returns the exit status; in the copy that is to become
 * process 1 it returns -1, and in `*orders` the socket of what that is ordered. */
int serve_starts(int *orders);
