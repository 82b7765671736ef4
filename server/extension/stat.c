/*-------------------------------------------------------------------------
 *
 * stat.c
 *		Counters: of the column values of this session, and, on a sealed cluster,
 *		those of the preloaded library over all processes.
 *
 * The library is not linked: if the server runs with it, its functions are found
 * by name.  The session's counts are added to those of the library when a
 * transaction ends.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include <dlfcn.h>

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#define CLASS_COUNTERS 8
#define COLUMN_COUNTERS 3

PG_FUNCTION_INFO_V1(pgseal_stat_io);
PG_FUNCTION_INFO_V1(pgseal_stat_columns);
PG_FUNCTION_INFO_V1(pgseal_counting_since);

SealCounts	pgseal_counts = {0, 0, 0};

/* The part of pgseal_counts that was added to the library's counters. */
static SealCounts added = {0, 0, 0};

/* server/pgseal-preload/src/file/counters.rs */
static int64 (*library_started) (void) = NULL;
static uint32 (*library_of_class) (uint32 class, char *name, uint32 name_room, uint64 *values, uint32 room) = NULL;
static uint32 (*library_of_columns) (uint64 *values, uint32 room) = NULL;
static void (*library_add) (uint64 sealed, uint64 opened, uint64 failed) = NULL;

static void
add_to_library(void)
{
	if (library_add == NULL ||
		(pgseal_counts.sealed == added.sealed && pgseal_counts.opened == added.opened &&
		 pgseal_counts.failed == added.failed))
		return;
	library_add(pgseal_counts.sealed - added.sealed, pgseal_counts.opened - added.opened,
				pgseal_counts.failed - added.failed);
	added = pgseal_counts;
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			add_to_library();
			break;
		default:
			break;
	}
}

void
pgseal_stat_init(void)
{
	library_started = (int64 (*) (void)) dlsym(RTLD_DEFAULT, "pgseal_counters_started");
	library_of_class = (uint32 (*) (uint32, char *, uint32, uint64 *, uint32))
		dlsym(RTLD_DEFAULT, "pgseal_counters_of_class");
	library_of_columns = (uint32 (*) (uint64 *, uint32)) dlsym(RTLD_DEFAULT, "pgseal_counters_of_columns");
	library_add = (void (*) (uint64, uint64, uint64)) dlsym(RTLD_DEFAULT, "pgseal_counters_add_columns");
	if (library_started == NULL || library_of_class == NULL || library_of_columns == NULL)
		library_add = NULL;
	RegisterXactCallback(at_transaction_end, NULL);
}

/* A row for each class of files; none if this server is not sealed. */
Datum
pgseal_stat_io(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char		name[NAMEDATALEN];
	uint64		counters[CLASS_COUNTERS];

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 class = 0; library_add != NULL; class++)
	{
		Datum		values[1 + CLASS_COUNTERS] = {0};
		bool		nulls[1 + CLASS_COUNTERS] = {0};
		uint32		known = library_of_class(class, name, sizeof(name), counters, CLASS_COUNTERS);

		if (known == 0)
			break;
		values[0] = CStringGetTextDatum(name);
		for (uint32 i = 0; i < CLASS_COUNTERS; i++)
		{
			/* An older library may have fewer counters. */
			nulls[1 + i] = i >= known;
			if (i < known)
				values[1 + i] = Int64GetDatum((int64) counters[i]);
		}
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * Counts of the values of this session, and of all sessions since the server started (NULL if the
 * server is not sealed).
 *
 * The sums over all sessions change with each transaction of another session, in any database, and
 * one of them shows whether that session could open a value.  Therefore only members of
 * pg_read_all_stats see these sums.
 */
Datum
pgseal_stat_columns(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		values[2 * COLUMN_COUNTERS] = {0};
	bool		nulls[2 * COLUMN_COUNTERS] = {0};
	uint64		counters[COLUMN_COUNTERS];
	uint32		known = 0;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "pgseal.stat_columns returns a row");
	add_to_library();
	if (library_add != NULL && has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		known = library_of_columns(counters, COLUMN_COUNTERS);
	values[0] = Int64GetDatum((int64) pgseal_counts.sealed);
	values[1] = Int64GetDatum((int64) pgseal_counts.opened);
	values[2] = Int64GetDatum((int64) pgseal_counts.failed);
	for (uint32 i = 0; i < COLUMN_COUNTERS; i++)
	{
		nulls[COLUMN_COUNTERS + i] = i >= known;
		if (i < known)
			values[COLUMN_COUNTERS + i] = Int64GetDatum((int64) counters[i]);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* When the server began to count; NULL if the server is not sealed. */
Datum
pgseal_counting_since(PG_FUNCTION_ARGS)
{
	int64		started = library_add != NULL ? library_started() : 0;

	if (started == 0)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(time_t_to_timestamptz((pg_time_t) started));
}
