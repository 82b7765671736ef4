/*-------------------------------------------------------------------------
 *
 * reseal.h
 *		What starts workers that give files new keys.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSEAL_RESEAL_H
#define PGSEAL_RESEAL_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "postmaster/bgworker.h"

/* What pgseal_reseal_state() says of a file (server/pgseal-preload/src/file/reseal.rs). */
#define STATE_NUMBERS 7
#define STATE_STAGE 1
#define STATE_WRITES 5
#define STATE_DUE 6

/* Stages of a file, as spec/sealed-file.md numbers them. */
#define SETTLED 0

/* The room that pgseal_suite_of() wants for a name. */
#define SUITE_NAME_LEN 32

/* Which files get new keys. */
typedef enum Which
{
	EVERY_FILE,
	BEGUN_FILES,				/* those that have two keys already */
	DUE_FILES,					/* these, and those whose key comes near its limit */
	OLDER_SUITE					/* relations with a file in an older suite are made anew */
} Which;

/* What a worker is to do; handed over in bgw_extra. */
typedef struct Task
{
	Oid			database;
	Oid			role;			/* who asked for it; InvalidOid: the server itself */
	Oid			relation;		/* with its indexes and its TOAST table; InvalidOid: all of the database */
	int			pages_per_second;	/* 0: no limit */
	Which		which;
	bool		any_database;	/* also one that allows no connections */
	int			lock_timeout_s; /* for OLDER_SUITE; 0: waits for any time */
} Task;

/* How fast a worker may go. */
typedef struct Pace
{
	TimestampTz started;
	int64		pages;
	int			pages_per_second;
	/* For the progress that others see. */
	int			relation;
	int			relations;
} Pace;

/* reseal.c */
extern int	(*library_suite_of) (int fd, char *name, int *is_older);
extern void find_library(void);
extern void expect_rights(void);
extern int	open_segment(const char *path);
extern void keep_pace(Pace *pace, int64 pages);
extern void end_of_attempt(void);
extern bool is_wanted(Which which, const uint64_t *state);
extern BackgroundWorkerHandle *start_worker(const Task *task);
extern void describe_worker(BackgroundWorker *worker, const char *name, const char *function);

/* rewrite.c */
extern void rewrite_relations(const Task *task, List *relations, Pace *pace, int64 *failed);

/* auto_reseal.c */
extern void register_auto_reseal(void);

#endif							/* PGSEAL_RESEAL_H */
