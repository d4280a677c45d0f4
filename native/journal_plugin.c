/*
 * A plugin of CRIU (criu-plugin.h, by the names of the first interface): it lets CRIU save one half of a stream connection to
 * systemd's journal, which is what a unit's standard output mostly is. Without it CRIU refuses. In a branch a log file stands in its
 * place. Every other half connection is refused as before, since it could not be restored.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char JOURNAL[] = "/run/systemd/journal/stdout";

int cr_plugin_dump_unix_sk(int fd, int id)
{
    struct sockaddr_un peer = {0};
    socklen_t size = sizeof(peer) - 1; /* so that the path ends */
    int type = 0;
    socklen_t type_size = sizeof(type);

    (void)id;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) || type != SOCK_STREAM)
        return -ENOTSUP;
    if (getpeername(fd, (struct sockaddr *)&peer, &size) || size <= offsetof(struct sockaddr_un, sun_path))
        return -ENOTSUP;
    return strcmp(peer.sun_path, JOURNAL) ? -ENOTSUP : 0;
}
