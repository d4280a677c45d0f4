/* What relive-micro says of a socket that CRIU would save: names, and options as numbers. */
#pragma once
#include <stdbool.h>
#include <sys/socket.h>

/* " LABEL=" and the bytes of an address; none where `result` says that there is no such address. */
void say_name(const char *label, int result, const struct sockaddr_storage *name, socklen_t size);

/* " LEVEL.OPTION=" and the bytes of each option. Of a connection without those that change by themselves, or with the repair mode in
 * which CRIU holds it. */
void say_options(int fd, bool is_connection);
