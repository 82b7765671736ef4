/*-------------------------------------------------------------------------
 *
 * plain_ops.c
 *		Operators between sealed and plain values.
 *
 * Equality with a plain value seals the plain value once and compares ciphertext.
 * The support function pgseal_equality_support() rewrites it so for the planner,
 * which can then use indexes, hashes and merges.  <, <=, >=, > open the values.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/nbtree.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* ---- equality ---- */

/*
 * Converts a plain value of type `from` to the base type; false if no value of the sealed type
 * equals it.
 */
static bool
as_base(SealedType *type, Oid from, Datum value, Datum *result)
{
	int64		number;

	*result = value;
	if (from == type->base)
		return pgseal_fits(type, value);
	switch (from)
	{
		case INT2OID:
			number = DatumGetInt16(value);
			break;
		case INT4OID:
			number = DatumGetInt32(value);
			break;
		case INT8OID:
			number = DatumGetInt64(value);
			break;
		default:
			elog(ERROR, "pgseal: no equality between %s and %s", type->name, format_type_be(from));
	}
	switch (type->base)
	{
		case INT4OID:
			*result = Int32GetDatum((int32) number);
			return number == (int32) number;
		case INT8OID:
			*result = Int64GetDatum(number);
			return true;
		case NUMERICOID:
			*result = DirectFunctionCall1(int8_numeric, Int64GetDatum(number));
			return pgseal_fits(type, *result);
		default:
			elog(ERROR, "pgseal: no equality between %s and %s", type->name, format_type_be(from));
	}
	return false;
}

static void
find_types(FunctionCallInfo fcinfo, CallSite *site)
{
	Oid		   *args;
	int			nargs;

	if (likely(OidIsValid(site->left)))
		return;
	(void) get_func_signature(fcinfo->flinfo->fn_oid, &args, &nargs);
	site->left = args[0];
	site->right = args[1];
}

static bool
equals_plain(FunctionCallInfo fcinfo)
{
	CallSite   *site = pgseal_call_site(fcinfo);
	SealedType *type;
	bool		left_sealed;
	Datum		sealed;
	Datum		plain;
	TypeCacheEntry *entry;

	find_types(fcinfo, site);
	if (site->type == NULL)
	{
		site->type = pgseal_type_or_null(site->left);
		if (site->type == NULL)
			site->type = pgseal_type(site->right);
		entry = lookup_type_cache(site->type->oid, TYPECACHE_EQ_OPR_FINFO);
		fmgr_info_copy(&site->cmp, &entry->eq_opr_finfo, fcinfo->flinfo->fn_mcxt);
	}
	type = site->type;
	left_sealed = type->oid == site->left;
	sealed = PG_GETARG_DATUM(left_sealed ? 0 : 1);
	plain = PG_GETARG_DATUM(left_sealed ? 1 : 0);
	if (!as_base(type, left_sealed ? site->right : site->left, plain, &plain))
		return false;
	return DatumGetBool(FunctionCall2Coll(&site->cmp, PG_GET_COLLATION(), sealed, pgseal_seal(type, plain)));
}

PG_FUNCTION_INFO_V1(pgseal_eq_plain);
Datum
pgseal_eq_plain(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(equals_plain(fcinfo));
}

PG_FUNCTION_INFO_V1(pgseal_ne_plain);
Datum
pgseal_ne_plain(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!equals_plain(fcinfo));
}

/*
 * The plain side of an equality as an expression of the sealed type; NULL if the operator has to
 * stay.
 */
static Node *
sealed_side(SealedType *type, Node *plain)
{
	Oid			from = exprType(plain);
	Oid			function;

	if (IsA(plain, Const))
	{
		Const	   *given = (Const *) plain;
		Datum		value;
		int16		typlen;
		bool		byval;

		if (given->constisnull || !as_base(type, from, given->constvalue, &value))
			return NULL;
		get_typlenbyval(type->oid, &typlen, &byval);
		return (Node *) makeConst(type->oid, -1, exprCollation(plain), typlen, pgseal_seal(type, value), false,
								  byval);
	}
	/* If a value may not fit into the sealed type, only the operator itself gives the right answer. */
	if (type->layout == LAYOUT_NUMERIC || (type->base == INT4OID && from == INT8OID))
		return NULL;
	if (from != type->base)
	{
		if (find_coercion_pathway(type->base, from, COERCION_IMPLICIT, &function) != COERCION_PATH_FUNC)
			return NULL;
		plain = (Node *) makeFuncExpr(function, type->base, list_make1(plain), InvalidOid, InvalidOid,
									  COERCE_IMPLICIT_CAST);
	}
	if (find_coercion_pathway(type->oid, type->base, COERCION_ASSIGNMENT, &function) != COERCION_PATH_FUNC ||
		get_func_nargs(function) != 1)
		return NULL;
	return (Node *) makeFuncExpr(function, type->oid, list_make1(plain), exprCollation(plain),
								 exprCollation(plain), COERCE_IMPLICIT_CAST);
}

PG_FUNCTION_INFO_V1(pgseal_equality_support);

Datum
pgseal_equality_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	FuncExpr   *call;
	Node	   *left,
			   *right,
			   *plain;
	SealedType *type;
	bool		left_sealed;
	Oid			operator;
	char	   *name;
	bool		negated;

	if (!IsA(request, SupportRequestSimplify))
		PG_RETURN_POINTER(NULL);
	call = ((SupportRequestSimplify *) request)->fcall;
	if (list_length(call->args) != 2)
		PG_RETURN_POINTER(NULL);
	left = linitial(call->args);
	right = lsecond(call->args);
	type = pgseal_type_or_null(exprType(left));
	left_sealed = type != NULL;
	if (!left_sealed)
		type = pgseal_type_or_null(exprType(right));
	if (type == NULL || type->mode == SEAL_RANDOM)
		PG_RETURN_POINTER(NULL);
	plain = sealed_side(type, left_sealed ? right : left);
	if (plain == NULL)
		PG_RETURN_POINTER(NULL);
	operator = lookup_type_cache(type->oid, TYPECACHE_EQ_OPR)->eq_opr;
	name = get_func_name(call->funcid);
	negated = name != NULL && strstr(name, "_ne_") != NULL;
	if (negated)
		operator = get_negator(operator);
	if (!OidIsValid(operator))
		PG_RETURN_POINTER(NULL);
	PG_RETURN_POINTER(make_opclause(operator, BOOLOID, false,
									(Expr *) (left_sealed ? left : plain),
									(Expr *) (left_sealed ? plain : right),
									InvalidOid, call->inputcollid));
}

/* ---- <, <=, >=, > ---- */

static bool
open_side(CallSite *site, int side, Datum *value)
{
	SealedType *type = site->sealed_types[side];
	Datum		opened;

	if (type == NULL)
		return true;
	if (type->domain == NULL)
		(void) pgseal_domain(NameStr(type->domain_name), false);
	if (!pgseal_may_decrypt(type->domain))
	{
		if (type->domain->mask)
			return false;
		pgseal_denied(type);
	}
	if (type->layout == LAYOUT_INT4 || type->layout == LAYOUT_INT8)
	{
		if (!site->seen[side] || site->sealed[side] != *value)
		{
			opened = pgseal_open(type, *value);
			site->sealed[side] = *value;
			site->opened[side] = opened;
			site->seen[side] = true;
		}
		*value = site->opened[side];
		return true;
	}
	*value = pgseal_open(type, *value);
	return true;
}

static Oid
base_of(Oid oid)
{
	SealedType *type = pgseal_type_or_null(oid);

	return type != NULL ? type->base : oid;
}

/* The order of two plain values; false if the role sees a mask instead. */
static bool
compare(FunctionCallInfo fcinfo, int *result)
{
	CallSite   *site = pgseal_call_site(fcinfo);
	Datum		left = PG_GETARG_DATUM(0);
	Datum		right = PG_GETARG_DATUM(1);

	find_types(fcinfo, site);
	if (unlikely(!OidIsValid(site->cmp.fn_oid)))
	{
		Oid			left_base = base_of(site->left);
		Oid			right_base = base_of(site->right);
		Oid			opclass = GetDefaultOpClass(left_base, BTREE_AM_OID);
		Oid			function = OidIsValid(opclass) ?
			get_opfamily_proc(get_opclass_family(opclass), left_base, right_base, BTORDER_PROC) : InvalidOid;

		if (!OidIsValid(function))
			elog(ERROR, "pgseal: no order between %s and %s", format_type_be(site->left),
				 format_type_be(site->right));
		fmgr_info_cxt(function, &site->cmp, fcinfo->flinfo->fn_mcxt);
		site->sealed_types[0] = pgseal_type_or_null(site->left);
		site->sealed_types[1] = pgseal_type_or_null(site->right);
	}
	if (!open_side(site, 0, &left) || !open_side(site, 1, &right))
		return false;
	*result = DatumGetInt32(FunctionCall2Coll(&site->cmp, PG_GET_COLLATION(), left, right));
	return true;
}

#define ORDERING(name, test) \
	PG_FUNCTION_INFO_V1(name); \
	Datum name(PG_FUNCTION_ARGS) \
	{ \
		int			order; \
		if (!compare(fcinfo, &order)) \
			PG_RETURN_NULL(); \
		PG_RETURN_BOOL(order test 0); \
	}

ORDERING(pgseal_lt, <)
ORDERING(pgseal_le, <=)
ORDERING(pgseal_ge, >=)
ORDERING(pgseal_gt, >)
