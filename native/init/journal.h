/* The journal: a record for each path before the service changes it, and the file by which the agent and this process talk.
 *
 * In the directory of a life's files:
 *
 *   control      4096 bytes, mapped by both sides; struct control
 *   journal.N    records of epoch N, in the order in which they were written
 *   base/SERIAL  what a file held before its first change, where a commit may need it; an empty directory with the extended
 *                attributes of one that has some
 *
 * A record is two texts, each ended by a zero byte: "SUM SERIAL TIME_NS KIND MODE UID GID SIZE MTIME_NS PATH" (decimal, MODE octal as
 * st_mode; TIME_NS of CLOCK_MONOTONIC), and what a symbolic link said (else empty). SUM is the CRC-32 (of zlib) of all bytes after the
 * blank behind it, with both zero bytes, in 8 hexadecimal digits. Records are appended by one write(2) each, so one that was begun is
 * whole unless the disk is full or the machine loses power.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* What was at a path before the call that the record is about. */
enum kind {
	NOTED = '-',	/* something is there, of which no commit needs a base */
	AGAIN = 't',	/* as NOTED, and not the path's first record */
	ABSENT = 'a',
	REGULAR = 'f',	/* base/SERIAL holds it */
	DIRECTORY = 'd',
	LINK = 'l',
	OTHER = 'o',	/* a FIFO, socket or device */
	MOVED = 'm',	/* absent; a directory is about to be moved here, with all below it */
	GONE = 'x',	/* a base was needed and could not be kept; the second text says why */
};

struct control {
	_Atomic uint32_t epoch;		/* set by the agent: a commit was taken, or the journal has grown; goes to journal.EPOCH */
	_Atomic uint32_t keep;		/* set by the agent: this life has a commit, so bases are needed */
	_Atomic uint32_t reached;	/* the epoch whose file is written to; earlier ones change no more once `busy` is 0 */
	_Atomic uint32_t busy;		/* bases that are being kept now, each for a call that waits */
	_Atomic uint64_t lost;		/* touches that could not be written down */
	_Atomic uint64_t serial;	/* of the last record */
	_Atomic uint64_t served;	/* calls that were asked about */
	_Atomic uint32_t version;	/* set by this process: JOURNAL_VERSION; 0 of one from before there was a number, which is 1 */
};

/* Of all that agent and process 1 share: this file, the records, the bases, and what a branch says (branches.h). An agent of a newer
 * Relive meets a process 1 that an older one started, and the other way round; it refuses a number that it does not know. */
enum { JOURNAL_VERSION = 1 };

extern struct control *control;

/* Open it in a directory. Returns 0 or an errno. */
int open_journal(int directory);

/* A number for the next record. */
uint64_t next_serial(void);

/* Write a record; from any thread. `facts`: NULL for ABSENT and MOVED. False: it could not be written, and is counted as lost. */
bool record(uint64_t serial, enum kind kind, const struct stat *facts, const char *path, const char *second);

/* Go on in the file of the current epoch; called by the thread that serves. */
void follow_epoch(void);
