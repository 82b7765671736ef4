/*-------------------------------------------------------------------------
 *
 * rotate.c
 *		One batch of a key rotation: seals the values in a range of blocks with the
 *		new key.
 *
 * The table may have CHECK constraints, triggers, rules and partition keys of its
 * owner.  The plain values do not change, and during a rotation no function could
 * read them.  So the UPDATE fires no trigger and checks no constraint.  Functions
 * that still run (of a partition key, or evaluated by the planner) run as the
 * owner in a restricted operation, as with REINDEX and ANALYZE.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* True while a batch runs as the table's owner. */
static bool batch_runs = false;

bool
pgseal_rotates_now(void)
{
	return batch_runs;
}

static char *
update_text(Relation target, Oid relation, ArrayType *columns, int from, int to, int64 first_block, int64 end_block)
{
	StringInfoData text;
	Datum	   *names;
	int			count;

	initStringInfo(&text);
	appendStringInfo(&text, "UPDATE %s AS x SET ",
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(target)),
												RelationGetRelationName(target)));
	deconstruct_array(columns, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &names, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		const char *name = quote_identifier(NameStr(*DatumGetName(names[i])));

		appendStringInfo(&text, "%s = _pgseal.recrypt(x.%s, %d, %d), ", name, name, from, to);
	}
	appendStringInfo(&text, "pgseal_rotated = %d WHERE x.tableoid = %u AND x.pgseal_rotated IS NULL"
					 " AND x.ctid >= '(" INT64_FORMAT ",0)' AND x.ctid < '(" INT64_FORMAT ",0)'",
					 to, relation, first_block, end_block);
	return text.data;
}

/* The query of the statement; rights are checked for the current user. */
static Query *
analyze(const char *text, Relation target)
{
	List	   *raw = pg_parse_query(text);
	List	   *queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, raw), text, NULL, 0, NULL);
	Query	   *query;
	ListCell   *cell;

	if (list_length(queries) != 1 || (query = linitial_node(Query, queries))->commandType != CMD_UPDATE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has a rule that is always on", RelationGetRelationName(target)),
				 errhint("Drop the rule, or ALTER TABLE ... DISABLE RULE, until the rotation is done.")));
#if PG_VERSION_NUM >= 160000
	foreach(cell, query->rteperminfos)
		lfirst_node(RTEPermissionInfo, cell)->checkAsUser = GetUserId();
#else
	foreach(cell, query->rtable)
		lfirst_node(RangeTblEntry, cell)->checkAsUser = GetUserId();
#endif
	return query;
}

/* Switches triggers and CHECK constraints off: a constraint without an expression is fulfilled. */
static void
silence(EState *estate)
{
	ListCell   *cell;

	foreach(cell, estate->es_opened_result_relations)
	{
		ResultRelInfo *result = lfirst(cell);
		TupleConstr *constr = RelationGetDescr(result->ri_RelationDesc)->constr;
		int			checks = constr ? constr->num_check : 0;
		ExprState **none = MemoryContextAllocZero(estate->es_query_cxt, (checks + 1) * sizeof(ExprState *));

		result->ri_TrigDesc = NULL;
#if PG_VERSION_NUM >= 180000
		result->ri_CheckConstraintExprs = none;
#else
		result->ri_ConstraintExprs = none;
#endif
	}
}

/*
 * (table to update, the table in it whose rows are updated, columns, from version, to version,
 * first block, end): rows changed
 */
PG_FUNCTION_INFO_V1(pgseal_rotate_batch);
Datum
pgseal_rotate_batch(PG_FUNCTION_ARGS)
{
	Relation	target;
	char	   *text;
	Query	   *query;
	PlannedStmt *plan;
	QueryDesc  *desc;
	int64		rows;
	Oid			user;
	int			context;
	int			nest_level;

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("only a superuser may handle the keys of pgseal")));
	/* Under this lock nobody can rename the table. */
	target = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	text = update_text(target, PG_GETARG_OID(1), PG_GETARG_ARRAYTYPE_P(2), PG_GETARG_INT32(3), PG_GETARG_INT32(4),
					   PG_GETARG_INT64(5), PG_GETARG_INT64(6));

	GetUserIdAndSecContext(&user, &context);
	nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
	query = analyze(text, target);
	PushCopiedSnapshot(GetTransactionSnapshot());
	UpdateActiveSnapshotCommandId();

	/*
	 * The planner may evaluate functions of the owner.  After an error, the rollback restores the
	 * user.
	 */
	SetUserIdAndSecContext(target->rd_rel->relowner, context | SECURITY_RESTRICTED_OPERATION);
	plan = pg_plan_query(query, text, 0, NULL);
	desc = CreateQueryDesc(plan, text, GetActiveSnapshot(), InvalidSnapshot, None_Receiver, NULL, NULL, 0);
	/* ExecutorStart checks the right to call _pgseal.recrypt, and runs no function of the owner. */
	SetUserIdAndSecContext(user, context);
	ExecutorStart(desc, 0);
	silence(desc->estate);

	SetUserIdAndSecContext(target->rd_rel->relowner, context | SECURITY_RESTRICTED_OPERATION);
	batch_runs = true;
	PG_TRY();
	{
#if PG_VERSION_NUM >= 180000
		ExecutorRun(desc, ForwardScanDirection, 0);
#else
		ExecutorRun(desc, ForwardScanDirection, 0, true);
#endif
		rows = (int64) desc->estate->es_processed;
		ExecutorFinish(desc);
	}
	PG_FINALLY();
	{
		batch_runs = false;
	}
	PG_END_TRY();
	ExecutorEnd(desc);
	FreeQueryDesc(desc);

	SetUserIdAndSecContext(user, context);
	PopActiveSnapshot();
	AtEOXact_GUC(false, nest_level);
	table_close(target, NoLock);
	CommandCounterIncrement();
	PG_RETURN_INT64(rows);
}
