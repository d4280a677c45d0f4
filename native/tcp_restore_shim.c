/* tcp_restore_shim: lets CRIU restore TCP connections whose two ends are both in the commit, with bytes that were never sent.
 *
 * Loaded into CRIU with LD_PRELOAD for restores. CRIU brings unsent bytes back by taking the socket out of repair mode for a
 * moment and writing them (soccr/soccr.c, libsoccr_restore_queue). Leaving repair mode sends a window probe (tcp(7), TCP_REPAIR);
 * where CRIU has not yet made the other end, the kernel answers that with a reset and the connection is gone. So repair mode is
 * left without a probe (TCP_REPAIR_OFF_NO_WP, Linux 4.19). The bytes themselves wait: no window is known by then.
 *
 * When all processes are there CRIU's restorer ends repair mode for good, by a system call of its own that is not touched here:
 * that one probes, the other end answers with its window, and the bytes are sent.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REPAIR_OFF = 0, REPAIR_OFF_NO_PROBE = -1 };

int setsockopt(int socket, int level, int name, const void *value, socklen_t length)
{
	static const int quietly = REPAIR_OFF_NO_PROBE;
	int wanted;

	if (level == IPPROTO_TCP && name == TCP_REPAIR && length == sizeof(wanted)) {
		memcpy(&wanted, value, sizeof(wanted));
		if (wanted == REPAIR_OFF)
			value = &quietly;
	}
	return (int)syscall(SYS_setsockopt, socket, level, name, value, length);
}
