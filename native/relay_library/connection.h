/* What the parts of one connection share, each with the worker's lock held; the relay's other files see engine.h only. */
#ifndef RELAY_CONNECTION_H
#define RELAY_CONNECTION_H

#include "engine.h"

/* flights.c: a ring of the requests without their whole answer, in the order of their answers */
struct flight *flight_add(struct connection *connection);
void flight_drop(struct connection *connection); /* the first */

/* events.c: all want the journal's lock, and build their fields in the worker's */
#define PUT(at, text) put_text(at, text, sizeof text - 1)
uint8_t *put_logs(struct relay *relay, uint8_t *at);
uint8_t *put_ends(struct connection *connection, uint8_t *at, int logs);
/* `fields_end`: where the fields end that were built; NULL: there are none */
void record_event(struct connection *connection, const char *kind, uint64_t request, const uint8_t *fields_end, const uint8_t *data,
                  size_t size);
void record_opened(struct connection *connection);
void record_closed(struct connection *connection);
void record_note(struct connection *connection, const char *text);
void record_how(struct connection *connection, const char *kind, uint64_t request, const char *how, int has_reused);

/* sending.c */
int is_gone(int error); /* the connection has ended, as errno says */
void send_on(struct connection *connection, int side, const uint8_t *data, size_t size); /* what is not taken now waits in `out` */
void send_waiting(struct connection *connection, int side);
void service_lost(struct connection *connection);

/* requests.c: the way to the service */
void client_readable(struct connection *connection);

/* answers.c: the way back */
void service_readable(struct connection *connection);
void break_flights(struct connection *connection, int is_reset); /* the service's side ended; answers that are not whole are broken */

#endif
