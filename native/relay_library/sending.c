/* Bytes to either side: what the kernel does not take now waits, and nothing that was recorded is dropped while the side lives. */
#include "connection.h"

#include <errno.h>

int is_gone(int error)
{
    return error != EAGAIN && error != EWOULDBLOCK && error != EINTR && error != ENOBUFS;
}

void service_lost(struct connection *connection)
{
    if (connection->service_lost)
        return;
    connection->service_lost = 1;
    break_flights(connection, 1);
    connection->client_reset = 1, connection->is_ending = 1;
}

/* A service that answers early and closes resets us while its answer waits to be read: that comes first. */
static void service_refuses(struct connection *connection, int error)
{
    struct bytes *out = &connection->out[SERVICE];
    if (connection->service_eof || (error != EPIPE && error != ECONNRESET)) {
        service_lost(connection);
        return;
    }
    connection->service_deaf = 1;
    bytes_drop(out, out->size);
}

void send_on(struct connection *connection, int side, const uint8_t *data, size_t size)
{
    struct bytes *out = &connection->out[side];
    if (!size || connection->doom || (side == SERVICE && (connection->service_lost || connection->service_deaf)))
        return;
    if (!out->size) {
        ssize_t sent = send(connection->fd[side], data, size, MSG_NOSIGNAL);
        if (sent < 0 && is_gone(errno)) {
            if (side == CLIENT)
                connection->doom = ENDS_BY_RESET;
            else
                service_refuses(connection, errno);
            return;
        }
        sent = sent < 0 ? 0 : sent;
        if (side == SERVICE)
            connection->sent += (uint64_t)sent;
        data += sent, size -= (size_t)sent;
    }
    bytes_add(out, data, size);
}

void send_waiting(struct connection *connection, int side)
{
    struct bytes *out = &connection->out[side];
    while (out->size) {
        ssize_t sent = send(connection->fd[side], out->data + out->begin, out->size, MSG_NOSIGNAL);
        if (sent < 0) {
            if (!is_gone(errno))
                return;
            if (side == CLIENT)
                connection->doom = ENDS_BY_RESET;
            else
                service_refuses(connection, errno);
            return;
        }
        if (side == SERVICE)
            connection->sent += (uint64_t)sent;
        bytes_drop(out, (size_t)sent);
    }
    if (side == SERVICE && connection->flight_count)
        connection_flight(connection, 0)->touched = relay_gate_clock(connection->worker->relay);
}
