/*-------------------------------------------------------------------------
 *
 * sorting.c
 *		Makes the sorts of a query sort by the decrypted value.
 *
 * A sort that cannot be rewritten is an error.  planner.c says why.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* ---- types that are ordered by ciphertext ---- */

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
 * The clause that sorts by the plain value of the column of an old clause.  It uses a hidden column
 * of the target list, which is added unless an earlier clause has added it (pairs: old and new
 * references).
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

void
pgseal_fix_sorting(Query *query)
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
	/* DISTINCT must use the same columns as ORDER BY. */
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

void
pgseal_fix_aggregate(Aggref *aggref)
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

/* ---- GREATEST and LEAST ---- */

void
pgseal_check_min_max(MinMaxExpr *expr)
{
	if (contains_sealed(expr->minmaxtype))
		refuse(expr->minmaxtype, "GREATEST or LEAST", "Cast the values to their plain type.");
}
