/*-------------------------------------------------------------------------
 *
 * rewrite.c
 *		Has the server make relations anew whose files have an older suite
 *		("pgseal key renew --suite").
 *
 * A suite with tags and one without have other offsets, so such a file cannot
 * change in place.  PostgreSQL's own commands make new files, and new files get
 * the new suite.  The worker of reseal.c runs one command after the other:
 *
 *	VACUUM (FULL)				a table or materialized view, with its TOAST table
 *								and all indexes
 *	REINDEX INDEX CONCURRENTLY	an index of a table that has the new suite already
 *								(of a catalog: without CONCURRENTLY)
 *	ALTER SEQUENCE ... CACHE	a sequence, with the value that it has
 *
 * Nothing is kept elsewhere: the headers say which files have an older suite.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_sequence.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

#include "reseal.h"

PGDLLEXPORT Datum pgseal_guard_file_suites(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(pgseal_guard_file_suites);

/* A file of a relation. */
typedef struct SealedFile
{
	ForkNumber	fork;
	uint32		segment;
	char		suite[SUITE_NAME_LEN];
	bool		is_older;
	int64		bytes;			/* for PostgreSQL, which does not see headers and tags */
} SealedFile;

/* Looks at a file; NULL if there is none, has_header is false if nothing was ever written to it. */
static SealedFile *
look_at_file(const char *path, bool *has_header)
{
	SealedFile *file;
	struct stat seen;
	int			older = 0;
	int			fd = open_segment(path);
	int			error;

	if (fd < 0)
		return NULL;
	file = palloc0(sizeof(SealedFile));
	error = library_suite_of(fd, file->suite, &older);
	if (error == 0 && fstat(fd, &seen) == 0)
		file->bytes = seen.st_size;
	CloseTransientFile(fd);
	if (error != 0 && error != EINVAL)
	{
		errno = error;
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("the suite of file \"%s\" is not known: %m", path),
				 errhint("Run \"pgseal verify\".")));
	}
	file->is_older = older != 0;
	*has_header = error == 0;
	return file;
}

/*
 * The files of a relation that have a suite.  Takes no lock, so that others can look while the
 * relation is made anew: what pg_class says of its files, and what is there, may then change at any
 * time.
 */
static List *
files_of(Oid relation)
{
	char		kind = get_rel_relkind(relation);
	List	   *found = NIL;
	char	   *base;
	LOCAL_FCINFO(call, 1);
	Datum		path;

	if (!RELKIND_HAS_STORAGE(kind) || get_rel_persistence(relation) == RELPERSISTENCE_TEMP)
		return NIL;
	InitFunctionCallInfoData(*call, NULL, 1, InvalidOid, NULL, NULL);
	call->args[0].value = ObjectIdGetDatum(relation);
	call->args[0].isnull = false;
	path = pg_relation_filepath(call);
	if (call->isnull)
		return NIL;
	base = text_to_cstring(DatumGetTextPP(path));
	for (ForkNumber fork = MAIN_FORKNUM; fork <= INIT_FORKNUM; fork++)
	{
		const char *suffix = fork == MAIN_FORKNUM ? "" : psprintf("_%s", forkNames[fork]);

		for (uint32 segment = 0;; segment++)
		{
			char	   *name = segment == 0 ? psprintf("%s%s", base, suffix) : psprintf("%s%s.%u", base, suffix, segment);
			bool		has_header;
			SealedFile *file = look_at_file(name, &has_header);

			CHECK_FOR_INTERRUPTS();
			if (file == NULL)
				break;
			file->fork = fork;
			file->segment = segment;
			if (has_header)
				found = lappend(found, file);
		}
	}
	return found;
}

/* Whether a relation has a file in an older suite. */
static bool
has_older_file(Oid relation)
{
	ListCell   *cell;

	foreach(cell, files_of(relation))
	{
		if (((SealedFile *) lfirst(cell))->is_older)
			return true;
	}
	return false;
}

/* Whether a relation or one of its indexes has a file in an older suite. */
static bool
is_older_with_indexes(Oid relation)
{
	Relation	rel;
	List	   *indexes;
	ListCell   *cell;

	if (has_older_file(relation))
		return true;
	if ((rel = try_relation_open(relation, AccessShareLock)) == NULL)
		return false;
	indexes = RelationGetIndexList(rel);
	relation_close(rel, AccessShareLock);
	foreach(cell, indexes)
	{
		if (has_older_file(lfirst_oid(cell)))
			return true;
	}
	return false;
}

/* Whether a table or its TOAST table has a file in an older suite. */
static bool
is_older_table(Oid relation)
{
	Relation	rel;
	Oid			toast;

	if (has_older_file(relation))
		return true;
	if ((rel = try_relation_open(relation, AccessShareLock)) == NULL)
		return false;
	toast = rel->rd_rel->reltoastrelid;
	relation_close(rel, AccessShareLock);
	return OidIsValid(toast) && is_older_with_indexes(toast);
}

/* The number of values of a sequence that a session takes at once. */
static int64
cache_of(Oid sequence)
{
	HeapTuple	tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(sequence));
	int64		cache;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("there is no sequence %u", sequence)));
	cache = ((Form_pg_sequence) GETSTRUCT(tuple))->seqcache;
	ReleaseSysCache(tuple);
	return cache;
}

/*
 * The command that makes a relation anew; NULL if it is not needed.  One for a table covers its
 * TOAST table and its indexes.  The caller has a transaction.
 */
static char *
command_for(Oid relation)
{
	char		kind = get_rel_relkind(relation);
	Oid			schema = get_rel_namespace(relation);
	char	   *name = get_rel_name(relation);

	if (name == NULL || get_rel_persistence(relation) == RELPERSISTENCE_TEMP)
		return NULL;
	name = quote_qualified_identifier(get_namespace_name(schema), name);
	switch (kind)
	{
		case RELKIND_RELATION:
		case RELKIND_MATVIEW:
			return is_older_table(relation) ? psprintf("VACUUM (FULL) %s", name) : NULL;
		case RELKIND_INDEX:
			/* Those of TOAST tables come with their tables. */
			if (IsToastNamespace(schema) || !has_older_file(relation))
				return NULL;
			return psprintf("REINDEX INDEX %s%s", relation < FirstNormalObjectId ? "" : "CONCURRENTLY ", name);
		case RELKIND_SEQUENCE:
			if (!has_older_file(relation))
				return NULL;
			return psprintf("ALTER SEQUENCE %s CACHE " INT64_FORMAT, name, cache_of(relation));
		default:
			return NULL;
	}
}

/* How many pages a relation has, with what belongs to it. */
static int64
pages_of(Oid relation)
{
	return DatumGetInt64(DirectFunctionCall1(pg_total_relation_size, ObjectIdGetDatum(relation))) / BLCKSZ;
}

/* Runs a command that may end its transaction and begin others.  The caller has none. */
static void
run_command(const char *sql)
{
	List	   *parsed;
	List	   *planned;

	debug_query_string = sql;
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	MemoryContextSwitchTo(PortalContext);
	parsed = pg_parse_query(sql);
	parsed = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, parsed), sql, NULL, 0, NULL);
	planned = pg_plan_queries(parsed, sql, 0, NULL);
	ProcessUtility(linitial_node(PlannedStmt, planned), sql, false, PROCESS_UTILITY_TOPLEVEL, NULL, NULL,
				   None_Receiver, NULL);
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	CommitTransactionCommand();
	debug_query_string = NULL;
}

/* Makes one relation anew if it has files in an older suite.  The caller has no transaction. */
static void
rewrite_relation(Oid relation, Pace *pace)
{
	char	   *sql;
	int64		pages = 0;

	MemoryContextReset(PortalContext);
	StartTransactionCommand();
	if ((sql = command_for(relation)) != NULL)
	{
		sql = MemoryContextStrdup(PortalContext, sql);
		pages = pages_of(relation);
	}
	CommitTransactionCommand();
	if (sql == NULL)
		return;
	MemoryContextSwitchTo(PortalContext);
	pgstat_report_activity(STATE_RUNNING,
						   psprintf("pgseal: %s (relation %d of %d, pages so far: " INT64_FORMAT ")", sql,
									pace->relation, pace->relations, pace->pages));
	run_command(sql);
	keep_pace(pace, pages);
}

/*
 * Makes those of the relations anew that have files in an older suite: tables first, because a
 * command for a table makes its indexes anew, too.
 */
void
rewrite_relations(const Task *task, List *relations, Pace *pace, int64 *failed)
{
	static const char order[] = {RELKIND_RELATION, RELKIND_MATVIEW, RELKIND_INDEX, RELKIND_SEQUENCE};
	ListCell   *cell;

	PortalContext = AllocSetContextCreate(TopMemoryContext, "pgseal rewrite", ALLOCSET_DEFAULT_SIZES);
	/* The commands have qualified names; those of functions in indexes are resolved already. */
	SetConfigOption("search_path", "", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", psprintf("%ds", task->lock_timeout_s), PGC_SUSET, PGC_S_OVERRIDE);
	for (size_t i = 0; i < lengthof(order); i++)
	{
		pace->relation = 0;
		foreach(cell, relations)
		{
			Oid			relation = lfirst_oid(cell);

			CHECK_FOR_INTERRUPTS();
			pace->relation++;
			PG_TRY();
			{
				char		kind;

				StartTransactionCommand();
				kind = get_rel_relkind(relation);
				CommitTransactionCommand();
				if (kind == order[i])
					rewrite_relation(relation, pace);
			}
			PG_CATCH();
			{
				/* A relation that cannot be locked does not keep the others as they are. */
				if (geterrcode() == ERRCODE_QUERY_CANCELED || geterrcode() == ERRCODE_ADMIN_SHUTDOWN)
					PG_RE_THROW();
				end_of_attempt();
				(*failed)++;
			}
			PG_END_TRY();
		}
	}
}

/*
 * (relation): a row for each file of the relation that is sealed: fork, segment, suite, whether new
 * files get another one, and how many bytes it has for PostgreSQL.
 */
Datum
pgseal_guard_file_suites(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *cell;

	expect_rights();
	find_library();
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, files_of(PG_GETARG_OID(0)))
	{
		SealedFile *file = lfirst(cell);
		Datum		values[5];
		bool		nulls[5] = {0};

		values[0] = CStringGetTextDatum(forkNames[file->fork]);
		values[1] = Int32GetDatum((int32) file->segment);
		values[2] = CStringGetTextDatum(file->suite);
		values[3] = BoolGetDatum(file->is_older);
		values[4] = Int64GetDatum(file->bytes);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
