/*-------------------------------------------------------------------------
 *
 * planner.c
 *		Makes ORDER BY sort by values, not by ciphertext.
 *
 * The default btree operator class of a sealed type orders ciphertext: primary
 * keys, merge joins and sorted grouping need some order.  ORDER BY must
 * return the order of values.  Therefore every query is examined before it is
 * planned; its ORDER BY clauses are made to sort by the decrypted value.  A sort
 * that cannot be rewritten is an error.
 *
 * "= ANY (array of plain values)" becomes "= ANY (array of sealed values)", so
 * that the array is sealed once and an index can be used.  Constants of VALUES
 * lists are sealed (fold.c).
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "parser/parse_coerce.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

static planner_hook_type next_planner = NULL;
static post_parse_analyze_hook_type next_analyze = NULL;

/* The context of a walk that changes the sorting and seals no constant. */
static char sorting_only;

static bool walk(Node *node, void *context);

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
 * The planner may inline a SQL function.  A body that is a string is parsed then, and analyze()
 * sees it.  A body in SQL-standard form (BEGIN ATOMIC) is already parsed: it is examined here.
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

		walk(after, &sorting_only);
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
			pgseal_fix_sorting((Query *) node);
			return query_tree_walker((Query *) node, walk, context, QTW_EXAMINE_RTES_BEFORE);
		case T_RangeTblEntry:
			{
				ListCell   *lc;

				if (((RangeTblEntry *) node)->rtekind == RTE_FUNCTION)
					foreach(lc, ((RangeTblEntry *) node)->functions)
						check_function(lfirst(lc));
				if (((RangeTblEntry *) node)->rtekind == RTE_VALUES && context != &sorting_only)
					foreach(lc, ((RangeTblEntry *) node)->values_lists)
					{
						ListCell   *vc;

						foreach(vc, (List *) lfirst(lc))
							lfirst(vc) = pgseal_fold(lfirst(vc));
					}
				return false;	/* query_tree_walker walks its contents */
			}
		case T_Aggref:
			pgseal_fix_aggregate((Aggref *) node);
			break;
		case T_ScalarArrayOpExpr:
			fix_any((ScalarArrayOpExpr *) node);
			break;
		case T_MinMaxExpr:
			pgseal_check_min_max((MinMaxExpr *) node);
			break;
		default:
			break;
	}
	return expression_tree_walker(node, walk, context);
}

/* ---- the right to compare ---- */

static void
expect_compare(Oid oid, bool *found)
{
	SealedType *type;
	TupleDesc	desc;

	if (oid < FirstNormalObjectId)
		return;
	if ((type = pgseal_type_or_null(oid)) != NULL)
	{
		if (type->domain != NULL && type->domain->closed)
		{
			*found = true;
			pgseal_expect_compare(type);
		}
		return;
	}
	/* Arrays and domains of sealed types, and rows that contain sealed types. */
	oid = getBaseType(oid);
	if (OidIsValid(get_element_type(oid)))
		expect_compare(get_element_type(oid), found);
	else if (pgseal_is_sealed(oid))
		expect_compare(oid, found);
	else if ((desc = lookup_rowtype_tupdesc_noerror(oid, -1, true)) != NULL)
	{
		for (int i = 0; i < desc->natts; i++)
			if (!TupleDescAttr(desc, i)->attisdropped)
				expect_compare(TupleDescAttr(desc, i)->atttypid, found);
		ReleaseTupleDesc(desc);
	}
}

typedef struct ColumnsContext
{
	List	   *tables;			/* range tables, the innermost first */
	bool		found;
} ColumnsContext;

/*
 * If a key domain requires a right to compare, a role without it may use none of its columns in a
 * query: not only operators show which values are equal, but everything that takes a value, even
 * the hash of an array or the image of a row.  Columns of VALUES lists hold the role's own values.
 * `found`: the plan is valid for this role only.
 */
static bool
look_at_columns(Node *node, void *data)
{
	ColumnsContext *context = data;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;
		List	   *tables = var->varlevelsup < list_length(context->tables) ?
			list_nth(context->tables, var->varlevelsup) : NIL;

		if (var->varno < 1 || var->varno > list_length(tables) ||
			rt_fetch(var->varno, tables)->rtekind != RTE_VALUES)
			expect_compare(var->vartype, &context->found);
		return false;
	}
	if (IsA(node, Query))
	{
		List	   *outer = context->tables;

		context->tables = list_concat(list_make1(((Query *) node)->rtable), outer);
		(void) query_tree_walker((Query *) node, look_at_columns, context, QTW_IGNORE_JOINALIASES);
		context->tables = outer;
		return false;
	}
	return expression_tree_walker(node, look_at_columns, context);
}

static int	planning = 0;

static PlannedStmt *
plan(Query *parse, const char *query_string, int cursor_options, ParamListInfo params)
{
	PlannedStmt *result;
	ColumnsContext columns = {NIL, false};

	look_at_columns((Node *) parse, &columns);
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
	/* A cached plan is made again for another role. */
	if (columns.found)
		result->dependsOnRole = true;
	return result;
}

/*
 * Runs for each parsed statement; during planning, for the bodies of SQL functions that are
 * inlined.
 */
static void
analyze(ParseState *pstate, Query *query, JumbleState *jstate)
{
	if (next_analyze)
		next_analyze(pstate, query, jstate);
	/* The tree is kept, and planned again after a change of keys: no constant may be sealed in it. */
	if (planning > 0)
		walk((Node *) query, &sorting_only);
	else
		pgseal_base_types_on_the_wire(pstate, query);
}

void
pgseal_planner_init(void)
{
	next_planner = planner_hook;
	planner_hook = plan;
	next_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = analyze;
}
