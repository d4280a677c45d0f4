/* The public port of a service, which stays open whatever becomes of the recording proxy. */
#pragma once
#include <sys/socket.h>

struct front {
	int listener;	/* a listening TCP socket; NONE (-1): there is no such port */
	int control;	/* a listening unix socket (SOCK_STREAM) */
	struct sockaddr_storage upstream;	/* where the service listens */
	socklen_t size;
};

/* Read ADDRESS and PORT into a front; returns 0 or an errno. */
int read_upstream(struct front *front, const char *address, const char *port);

/* Keep the port in a thread of its own. Whoever connects to `control` gets the listener (SCM_RIGHTS) and is the only one who takes
 * connections for as long as it stays connected. While nobody is, connections are carried to the service as they are: at once when
 * the last one has been gone for a while, and some seconds after the start. Returns 0 or an errno. */
int start_front(const struct front *asked);
