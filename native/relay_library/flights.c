#include "connection.h"

#include <stdlib.h>
#include <string.h>

struct flight *connection_flight(struct connection *connection, size_t index)
{
    return &connection->flights[(connection->flight_begin + index) % connection->flight_room];
}

struct flight *flight_add(struct connection *connection)
{
    if (connection->flight_count == connection->flight_room) {
        size_t room = connection->flight_room ? connection->flight_room * 2 : 2;
        struct flight *flights = must(calloc(room, sizeof *flights));
        for (size_t i = 0; i < connection->flight_count; i++)
            flights[i] = *connection_flight(connection, i);
        free(connection->flights);
        connection->flights = flights, connection->flight_begin = 0, connection->flight_room = room;
    }
    struct flight *flight = connection_flight(connection, connection->flight_count++);
    memset(flight, 0, sizeof *flight);
    atomic_fetch_add(&connection->worker->relay->in_flight, 1);
    return flight;
}

void flight_drop(struct connection *connection)
{
    connection->flight_begin = (connection->flight_begin + 1) % connection->flight_room;
    connection->flight_count--;
    struct relay *relay = connection->worker->relay;
    atomic_fetch_sub(&relay->in_flight, 1);
    if (connection->flight_count)
        connection_flight(connection, 0)->touched = relay_gate_clock(relay);
}

void flight_drop_last(struct connection *connection)
{
    connection->flight_count--;
    atomic_fetch_sub(&connection->worker->relay->in_flight, 1);
}
