/*-------------------------------------------------------------------------
 *
 * planner.c
 *		Keeps ORDER BY honest.
 *
 * The default btree operator class of a sealed type orders ciphertext, because
 * primary keys, merge joins and sorted grouping need an order, and any will
 * do for them.  ORDER BY means the order of values.  Every query that is to be
 * planned is looked at, and what it wants sorted for the user is sorted by the
 * decrypted value; what cannot be is an error.
 *
 * "= ANY (array of plain values)" becomes one of sealed values here, so that
 * the array is sealed once and an index can be used.  Constants of VALUES lists
 * are sealed here (fold.c).
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/analyze.h"
#include "parser/parse_clause.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

static planner_hook_type next_planner = NULL;
static post_parse_analyze_hook_type next_analyze = NULL;

/* The context of a walk that changes only what is sorted wrongly. */
static char only_looking;

static bool walk(Node *node, void *context);

/* ---- what has an order that is not one of values ---- */

static bool
contains_sealed(Oid type)
{
	Oid			element;

	if (type < FirstNormalObjectId && type != RECORDOID && type != RECORDARRAYOID)
		return false;
	type = getBaseType(type);
	if (pgseal_is_sealed(type))
		return true;
	element = get_element_type(type);
	if (OidIsValid(element))
		return contains_sealed(element);
	if (get_typtype(type) == TYPTYPE_COMPOSITE)
	{
		TupleDesc	desc = lookup_rowtype_tupdesc(type, -1);
		bool		found = false;

		for (int i = 0; i < desc->natts && !found; i++)
			found = !TupleDescAttr(desc, i)->attisdropped && contains_sealed(TupleDescAttr(desc, i)->atttypid);
		ReleaseTupleDesc(desc);
		return found;
	}
	if (get_typtype(type) == TYPTYPE_RANGE)
		return contains_sealed(get_range_subtype(type));
	return false;
}

static bool
row_contains_sealed(Node *node)
{
	ListCell   *lc;

	if (!IsA(node, RowExpr))
		return false;
	foreach(lc, ((RowExpr *) node)->args)
		if (contains_sealed(exprType(lfirst(lc))) || row_contains_sealed(lfirst(lc)))
			return true;
	return false;
}

static void
refuse(Oid type, const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s by %s would use the order of ciphertext, which says nothing about values",
					what, format_type_be(type)),
			 errhint("%s", hint)));
}

/* ---- sorting by the plain value ---- */

static Expr *
plain_of(Expr *sealed)
{
	SealedType *type = pgseal_type(getBaseType(exprType((Node *) sealed)));
	Oid			collation = exprCollation((Node *) sealed);
	Oid			function;

	if (find_coercion_pathway(type->base, type->oid, COERCION_EXPLICIT, &function) != COERCION_PATH_FUNC)
		elog(ERROR, "pgseal: no cast from %s to its base type", type->name);
	return (Expr *) makeFuncExpr(function, type->base, list_make1(copyObject(sealed)),
								 collation, collation, COERCE_EXPLICIT_CAST);
}

static bool
sorts_down(SortGroupClause *clause, Oid type)
{
	return clause->sortop == lookup_type_cache(type, TYPECACHE_GT_OPR)->gt_opr;
}

/*
 * The clause that sorts by the plain value of what an old one sorts by.  A hidden column is added to the target list
 * for it, unless an earlier clause has done so (pairs: old and new references).
 */
static SortGroupClause *
plain_clause(SortGroupClause *old, List **tlist, List **pairs, const char *what)
{
	TargetEntry *entry = get_sortgroupref_tle(old->tleSortGroupRef, *tlist);
	Oid			type = getBaseType(exprType((Node *) entry->expr));
	SortGroupClause *clause;
	TargetEntry *hidden = NULL;
	TypeCacheEntry *base;
	ListCell   *lc;

	if (!OidIsValid(old->sortop) || type < FirstNormalObjectId)
	{
		if (type == RECORDOID && row_contains_sealed((Node *) entry->expr))
			refuse(type, what, "Sort by the columns of the row instead.");
		return old;
	}
	if (!pgseal_is_sealed(type))
	{
		if (contains_sealed(type))
			refuse(type, what, "Sort by plain values instead, with a cast of each.");
		return old;
	}
	foreach(lc, *pairs)
	{
		List	   *pair = lfirst(lc);

		if (linitial_int(pair) == (int) old->tleSortGroupRef)
			hidden = get_sortgroupref_tle(lsecond_int(pair), *tlist);
	}
	if (hidden == NULL)
	{
		Index		ref = 0;

		foreach(lc, *tlist)
			ref = Max(ref, lfirst_node(TargetEntry, lc)->ressortgroupref);
		hidden = makeTargetEntry(plain_of(entry->expr), list_length(*tlist) + 1, NULL, true);
		hidden->ressortgroupref = ref + 1;
		*tlist = lappend(*tlist, hidden);
		*pairs = lappend(*pairs, list_make2_int(old->tleSortGroupRef, ref + 1));
	}
	base = lookup_type_cache(exprType((Node *) hidden->expr),
							 TYPECACHE_LT_OPR | TYPECACHE_GT_OPR | TYPECACHE_EQ_OPR | TYPECACHE_HASH_PROC);
	clause = copyObject(old);
	clause->tleSortGroupRef = hidden->ressortgroupref;
	clause->eqop = base->eq_opr;
	clause->sortop = sorts_down(old, type) ? base->gt_opr : base->lt_opr;
	clause->hashable = OidIsValid(base->hash_proc);
	return clause;
}

static void
fix_sorting(Query *query)
{
	List	   *pairs = NIL;
	ListCell   *lc;

	if (query->setOperations != NULL)
	{
		foreach(lc, query->sortClause)
		{
			SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
			Oid			type = exprType((Node *) get_sortgroupclause_tle(clause, query->targetList)->expr);

			if (contains_sealed(type))
				refuse(type, "ORDER BY of a UNION, INTERSECT or EXCEPT",
					   "Put it into a subquery: SELECT * FROM (... UNION ...) AS s ORDER BY ...");
		}
		return;
	}
	foreach(lc, query->sortClause)
		lfirst(lc) = plain_clause(lfirst(lc), &query->targetList, &pairs, "ORDER BY");
	/* DISTINCT has to agree with the ORDER BY that it goes with. */
	if (pairs != NIL)
		foreach(lc, query->distinctClause)
		{
			SortGroupClause *clause = lfirst(lc);
			ListCell   *pc;

			foreach(pc, pairs)
				if (linitial_int(lfirst(pc)) == (int) clause->tleSortGroupRef)
				{
					lfirst(lc) = plain_clause(clause, &query->targetList, &pairs, "DISTINCT");
					break;
				}
		}
	foreach(lc, query->windowClause)
	{
		WindowClause *window = lfirst_node(WindowClause, lc);
		ListCell   *oc;

		foreach(oc, window->orderClause)
			lfirst(oc) = plain_clause(lfirst(oc), &query->targetList, &pairs, "ORDER BY of a window");
	}
}

static void
fix_aggregate(Aggref *aggref)
{
	List	   *pairs = NIL;
	ListCell   *lc;

	foreach(lc, aggref->aggorder)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		Oid			type = exprType((Node *) get_sortgroupclause_tle(clause, aggref->args)->expr);

		if (!contains_sealed(type))
			continue;
		if (aggref->aggkind != AGGKIND_NORMAL)
			refuse(type, "WITHIN GROUP", "Cast the value to its plain type.");
		if (aggref->aggdistinct != NIL)
			refuse(type, "ORDER BY of an aggregate with DISTINCT", "Cast the value to its plain type.");
		lfirst(lc) = plain_clause(clause, &aggref->args, &pairs, "ORDER BY of an aggregate");
	}
}

/* ---- = ANY (array) ---- */

static void
fix_any(ScalarArrayOpExpr *expr)
{
	Node	   *left = linitial(expr->args);
	Node	   *array = lsecond(expr->args);
	Oid			oid = exprType(left);
	SealedType *type;
	CaseTestExpr *element;
	ArrayCoerceExpr *coerce;
	Oid			equality;
	Oid			inequality;
	Oid			wanted;

	if (oid < FirstNormalObjectId || (type = pgseal_type_or_null(oid)) == NULL ||
		type->mode == SEAL_RANDOM || type->layout == LAYOUT_NUMERIC)
		return;
	if (get_element_type(exprType(array)) == InvalidOid || exprType(array) == get_array_type(oid))
		return;
	equality = lookup_type_cache(oid, TYPECACHE_EQ_OPR)->eq_opr;
	inequality = get_negator(equality);
	if (strcmp(get_opname(expr->opno), "=") == 0 && expr->useOr)
		wanted = equality;
	else if (strcmp(get_opname(expr->opno), "<>") == 0 && !expr->useOr)
		wanted = inequality;
	else
		return;
	element = makeNode(CaseTestExpr);
	element->typeId = get_element_type(exprType(array));
	element->typeMod = -1;
	element->collation = get_typcollation(element->typeId);
	coerce = makeNode(ArrayCoerceExpr);
	if (element->typeId == type->base)
	{
		Oid			function;

		if (find_coercion_pathway(oid, type->base, COERCION_ASSIGNMENT, &function) != COERCION_PATH_FUNC ||
			get_func_nargs(function) != 1)
			return;
		coerce->elemexpr = (Expr *) makeFuncExpr(function, oid, list_make1(element), element->collation,
												 element->collation, COERCE_IMPLICIT_CAST);
	}
	else
		return;
	coerce->arg = (Expr *) array;
	coerce->resulttype = get_array_type(oid);
	coerce->resulttypmod = -1;
	coerce->resultcollid = exprCollation(array);
	coerce->coerceformat = COERCE_IMPLICIT_CAST;
	coerce->location = -1;
	lsecond(expr->args) = coerce;
	expr->opno = wanted;
	expr->opfuncid = get_opcode(wanted);
}

/* ---- the walk ---- */

/*
 * The planner may put the body of a SQL function in the place of its call without showing it to us.  Bodies in
 * quotes are parsed then, which we see; others are looked at here.
 */
static void
check_function(RangeTblFunction *function)
{
	FuncExpr   *call = (FuncExpr *) function->funcexpr;
	HeapTuple	tuple;
	Datum		body;
	bool		isnull;

	if (!IsA(call, FuncExpr) || call->funcid < FirstNormalObjectId)
		return;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(call->funcid));
	if (!HeapTupleIsValid(tuple))
		return;
	body = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosqlbody, &isnull);
	if (!isnull && ((Form_pg_proc) GETSTRUCT(tuple))->prolang == SQLlanguageId)
	{
		Node	   *before = stringToNode(TextDatumGetCString(body));
		Node	   *after = copyObject(before);

		walk(after, &only_looking);
		if (!equal(before, after))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("function %s sorts by sealed values in a body that is not a string",
							get_func_name(call->funcid)),
					 errhint("Write its body as a string, or cast the values to plain types.")));
	}
	ReleaseSysCache(tuple);
}

static bool
walk(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Query:
			fix_sorting((Query *) node);
			return query_tree_walker((Query *) node, walk, context, QTW_EXAMINE_RTES_BEFORE);
		case T_RangeTblEntry:
			{
				ListCell   *lc;

				if (((RangeTblEntry *) node)->rtekind == RTE_FUNCTION)
					foreach(lc, ((RangeTblEntry *) node)->functions)
						check_function(lfirst(lc));
				if (((RangeTblEntry *) node)->rtekind == RTE_VALUES && context != &only_looking)
					foreach(lc, ((RangeTblEntry *) node)->values_lists)
					{
						ListCell   *vc;

						foreach(vc, (List *) lfirst(lc))
							lfirst(vc) = pgseal_fold(lfirst(vc));
					}
				return false;	/* query_tree_walker goes on into it */
			}
		case T_Aggref:
			fix_aggregate((Aggref *) node);
			break;
		case T_ScalarArrayOpExpr:
			fix_any((ScalarArrayOpExpr *) node);
			break;
		case T_MinMaxExpr:
			if (contains_sealed(((MinMaxExpr *) node)->minmaxtype))
				refuse(((MinMaxExpr *) node)->minmaxtype, "GREATEST or LEAST", "Cast the values to their plain type.");
			break;
		default:
			break;
	}
	return expression_tree_walker(node, walk, context);
}

static int	planning = 0;

static PlannedStmt *
plan(Query *parse, const char *query_string, int cursor_options, ParamListInfo params)
{
	PlannedStmt *result;

	walk((Node *) parse, NULL);
	pgseal_keys_export();
	planning++;
	PG_TRY();
	{
		result = next_planner ? next_planner(parse, query_string, cursor_options, params) :
			standard_planner(parse, query_string, cursor_options, params);
	}
	PG_FINALLY();
	{
		planning--;
	}
	PG_END_TRY();
	return result;
}

/* Bodies of SQL functions that the planner puts in the place of their calls. */
static void
analyze(ParseState *pstate, Query *query, JumbleState *jstate)
{
	if (next_analyze)
		next_analyze(pstate, query, jstate);
	/* The tree is kept, and planned anew when the key has changed: no constant is sealed in it. */
	if (planning > 0)
		walk((Node *) query, &only_looking);
}

void
pgseal_planner_init(void)
{
	next_planner = planner_hook;
	planner_hook = plan;
	next_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = analyze;
}
