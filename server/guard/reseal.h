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

#include "postmaster/bgworker.h"

/* What pgseal_reseal_state() says of a file (server/pgseal-preload/src/file/reseal.rs). */
#define STATE_NUMBERS 7
#define STATE_STAGE 1
#define STATE_WRITES 5
#define STATE_DUE 6

/* Stages of a file, as spec/sealed-file.md numbers them. */
#define SETTLED 0

/* Which files get new keys. */
typedef enum Which
{
	EVERY_FILE,
	BEGUN_FILES,				/* those that have two keys already */
	DUE_FILES					/* these, and those whose key comes near its limit */
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
} Task;

extern bool is_wanted(Which which, const uint64_t *state);
extern BackgroundWorkerHandle *start_worker(const Task *task);
extern void describe_worker(BackgroundWorker *worker, const char *name, const char *function);

/* auto_reseal.c */
extern void register_auto_reseal(void);

#endif							/* PGSEAL_RESEAL_H */
