/* What the parts of one connection share, each with the worker's lock held; the relay's other files see engine.h only. */
#ifndef RELAY_CONNECTION_H
#define RELAY_CONNECTION_H

#include "engine.h"

/* flights.c: a ring of the requests without their whole answer, in the order of their answers */
struct flight *flight_add(struct connection *connection);
void flight_drop(struct connection *connection); /* the first */
void flight_drop_last(struct connection *connection); /* it is another's */

/* events.c: all want the journal's lock, and build their fields in the worker's */
#define PUT(at, text) put_text(at, text, sizeof text - 1)
uint8_t *put_logs(struct relay *relay, uint8_t *at); /* of this moment */
uint8_t *put_logs_before(struct relay *relay, uint8_t *at); /* the last noted before what is recorded was seen; of this moment where none are noted */
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
/* Record the client's next bytes; with the journal's lock. Returns how many of them go on now; what does not is to be held. */
size_t frame_requests(struct connection *connection, const uint8_t *data, size_t size);

/* answers.c: the way back */
void service_readable(struct connection *connection);
/* The same of the service's. What does not go on is the beginning of a head; *is_odd: one that Python must judge. */
size_t frame_answers(struct connection *connection, const uint8_t *data, size_t size, int *is_odd);
/* The service's next bytes were not taken: go on behind them if they are of a body whose length is known. Returns whether they are. */
int pass_over_answer(struct connection *connection, uint64_t size);
/* The service's side ended; answers that are not whole are broken. The first with the journal's lock. */
void record_broken(struct connection *connection, int is_reset);
void break_flights(struct connection *connection, int is_reset);

#endif
