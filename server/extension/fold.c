/*-------------------------------------------------------------------------
 *
 * fold.c
 *		Seals the constants of VALUES lists before the planner sees them.
 *
 * A constant of a sealed column is the argument of an immutable cast.  The
 * planner would evaluate each cast with an executor of its own, which takes
 * several times as long as sealing.  Here the function is called directly.  The
 * planner evaluates every other expression.
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
#include "utils/syscache.h"

/* A cast has up to three arguments: value, type modifier, whether it is explicit. */
#define MAX_ARGS 3

typedef struct Cast
{
	uint64		generation;
	uint64		rights;
	Oid			function;
	bool		foldable;
	FmgrInfo	flinfo;
} Cast;

/* The cast with this function; NULL if it must not be called here. */
static Cast *
find_cast(Oid function)
{
	static Cast known[64];
	Cast	   *cast = &known[function % lengthof(known)];

	if (cast->function != function || cast->generation != pgseal_generation || cast->rights != pgseal_rights_generation())
	{
		HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
		Form_pg_proc proc;

		if (!HeapTupleIsValid(tuple))
			return NULL;
		cast->function = InvalidOid;	/* until the entry is complete */
		proc = (Form_pg_proc) GETSTRUCT(tuple);
		/* The executor would check EXECUTE: a function with an ACL is left to the planner. */
		cast->foldable = proc->provolatile == PROVOLATILE_IMMUTABLE && proc->proisstrict && !proc->proretset &&
			proc->prolang == ClanguageId && proc->pronargs <= MAX_ARGS && !proc->prosecdef &&
			heap_attisnull(tuple, Anum_pg_proc_proconfig, NULL) &&
			heap_attisnull(tuple, Anum_pg_proc_proacl, NULL);
		ReleaseSysCache(tuple);
		if (cast->foldable)
			fmgr_info_cxt(function, &cast->flinfo, pgseal_catalog_context());
		cast->function = function;
		cast->generation = pgseal_generation;
		cast->rights = pgseal_rights_generation();
	}
	return cast->foldable ? cast : NULL;
}

/* The constant that an expression of a VALUES list evaluates to, or the expression itself. */
Node *
pgseal_fold(Node *node)
{
	FuncExpr   *call = (FuncExpr *) node;
	SealedType *type;
	Cast	   *cast;
	ListCell   *lc;
	Datum		result;
	int			nargs = 0;
	LOCAL_FCINFO(fcinfo, MAX_ARGS);

	if (node == NULL || !IsA(node, FuncExpr) || call->funcresulttype < FirstNormalObjectId ||
		call->funcid < FirstNormalObjectId || call->funcretset || call->args == NIL ||
		list_length(call->args) > MAX_ARGS ||
		(call->funcformat != COERCE_IMPLICIT_CAST && call->funcformat != COERCE_EXPLICIT_CAST))
		return node;
	foreach(lc, call->args)
	{
		Const	   *arg = lfirst(lc);

		if (!IsA(arg, Const) || arg->constisnull)
			return node;
		fcinfo->args[nargs].value = arg->constvalue;
		fcinfo->args[nargs++].isnull = false;
	}
	type = pgseal_type_or_null(call->funcresulttype);
	if (type == NULL || (cast = find_cast(call->funcid)) == NULL)
		return node;
	/* A cast to another precision looks at the expression that it is part of. */
	fmgr_info_set_expr(node, &cast->flinfo);
	InitFunctionCallInfoData(*fcinfo, &cast->flinfo, nargs, call->inputcollid, NULL, NULL);
	result = FunctionCallInvoke(fcinfo);
	if (fcinfo->isnull)
		return node;
	return (Node *) makeConst(type->oid, exprTypmod(node), call->funccollid,
							  type->layout == LAYOUT_VARLENA ? -1 : type->layout == LAYOUT_INT4 ? 4 : 8,
							  result, false, type->layout != LAYOUT_VARLENA);
}
