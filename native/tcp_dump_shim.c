/* tcp_dump_shim: keeps a commit from stalling the service's TCP connections.
 *
 * Loaded into CRIU with LD_PRELOAD for dumps. To read what a socket has written and nobody has acknowledged yet CRIU puts it into
 * repair mode, chooses the queue of what is sent (tcp(7), TCP_REPAIR_QUEUE), and peeks. It leaves the queue chosen until the service
 * runs again (soccr/soccr.c, get_queue). Whatever gives the kernel a reason to send meanwhile, an acknowledgement or a timer, then
 * counts all that waits as sent without sending any of it (tcp_write_xmit() in net/ipv4/tcp_output.c): it has to be found lost and sent
 * again, after 0.2 s where the other end has room, after up to minutes where it had none. So no queue stays chosen.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NO_QUEUE = 0 };

ssize_t recv(int socket, void *buffer, size_t length, int flags)
{
	static const int none = NO_QUEUE;
	ssize_t result = syscall(SYS_recvfrom, socket, buffer, length, flags, NULL, NULL);
	int error = errno;

	if (flags & MSG_PEEK) /* EPERM where it is not in repair mode */
		setsockopt(socket, IPPROTO_TCP, TCP_REPAIR_QUEUE, &none, sizeof(none));
	errno = error;
	return result;
}

/* As programs call it that were compiled with _FORTIFY_SOURCE. */
ssize_t __recv_chk(int socket, void *buffer, size_t length, size_t room, int flags)
{
	(void)room;
	return recv(socket, buffer, length, flags);
}
