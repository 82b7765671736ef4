/*-------------------------------------------------------------------------
 *
 * io.c
 *		Input, output and casts of every sealed type.
 *
 * One set of C functions serves all types; the SQL function that is called
 * determines the type.
 *
 * May use: text.c, value.c, form.c and what is below them.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "libpq/pqformat.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"

/*
 * What a role without the right to decrypt sees of a key domain with masks, and of each in the
 * DETAIL of a violated key.
 */
#define MASK "***"

PG_FUNCTION_INFO_V1(pgseal_in);
PG_FUNCTION_INFO_V1(pgseal_out);
PG_FUNCTION_INFO_V1(pgseal_recv);
PG_FUNCTION_INFO_V1(pgseal_send);
PG_FUNCTION_INFO_V1(pgseal_cast_seal);
PG_FUNCTION_INFO_V1(pgseal_cast_from);
PG_FUNCTION_INFO_V1(pgseal_cast_open);
PG_FUNCTION_INFO_V1(pgseal_typmod);
PG_FUNCTION_INFO_V1(pgseal_numeric_typmod_in);

static bool
may_open(SealedType *type)
{
	if (unlikely(type->domain == NULL))
		(void) pgseal_domain(NameStr(type->domain_name), false);
	return pgseal_may_decrypt(type->domain);
}

/* ---- text and binary ---- */

/*
 * The type of a result.  While a dump is restored, the catalog of pgseal may not be there yet; then
 * only the name and the length of the type are known.
 */
static SealedType *
type_of_sealed_form(FunctionCallInfo fcinfo)
{
	static SealedType unknown;
	Oid			oid = get_func_rettype(fcinfo->flinfo->fn_oid);
	int16		typlen;

	if (pgseal_type_or_null(oid) != NULL)
		return pgseal_type_of_result(fcinfo);
	typlen = get_typlen(oid);
	memset(&unknown, 0, sizeof(unknown));
	unknown.oid = oid;
	unknown.name = format_type_be(oid);
	unknown.layout = typlen == 4 ? LAYOUT_INT4 : typlen == 8 ? LAYOUT_INT8 : LAYOUT_VARLENA;
	return &unknown;
}

Datum
pgseal_in(PG_FUNCTION_ARGS)
{
	char	   *text = PG_GETARG_CSTRING(0);
	int32		typmod = PG_GETARG_INT32(2);

	if (pgseal_format == FORM_SEALED)
		PG_RETURN_DATUM(pgseal_form_from_text(type_of_sealed_form(fcinfo), text));
	PG_RETURN_DATUM(pgseal_seal_text(pgseal_type_of_result(fcinfo), text, typmod));
}

Datum
pgseal_out(PG_FUNCTION_ARGS)
{
	Datum		sealed = PG_GETARG_DATUM(0);
	SealedType *type = pgseal_type_of_argument(fcinfo);

	if (pgseal_format == FORM_SEALED)
	{
		pgseal_expect_compare(type);
		PG_RETURN_CSTRING(pgseal_form_to_text(type, sealed));
	}
	if (!may_open(type))
	{
		if (type->domain->mask || pgseal_reports_violation())
			PG_RETURN_CSTRING(pstrdup(MASK));
		pgseal_denied(type);
	}
	PG_RETURN_CSTRING(OutputFunctionCall(&type->base_out, pgseal_open(type, sealed)));
}

Datum
pgseal_recv(PG_FUNCTION_ARGS)
{
	StringInfo	buf = (StringInfo) PG_GETARG_POINTER(0);
	int32		typmod = PG_GETARG_INT32(2);
	SealedType *type;

	if (pgseal_format == FORM_SEALED)
		PG_RETURN_DATUM(pgseal_form_receive(type_of_sealed_form(fcinfo), buf));
	type = pgseal_type_of_result(fcinfo);
	pgseal_form_refuse_binary(type, buf);
	PG_RETURN_DATUM(pgseal_seal(type, ReceiveFunctionCall(&type->base_recv, buf, type->base_ioparam, typmod)));
}

Datum
pgseal_send(PG_FUNCTION_ARGS)
{
	Datum		sealed = PG_GETARG_DATUM(0);
	SealedType *type = pgseal_type_of_argument(fcinfo);

	if (pgseal_format == FORM_SEALED)
	{
		pgseal_expect_compare(type);
		PG_RETURN_BYTEA_P(pgseal_form_send(type, sealed));
	}
	if (!may_open(type))
	{
		if (type->domain->mask && (type->base == TEXTOID || type->base == BYTEAOID))
			PG_RETURN_BYTEA_P(DatumGetByteaP(DirectFunctionCall1(textsend, CStringGetTextDatum(MASK))));
		pgseal_denied(type);
	}
	PG_RETURN_BYTEA_P(SendFunctionCall(&type->base_send, pgseal_open(type, sealed)));
}

/* ---- casts ---- */

static Datum
coerce_base(SealedType *type, Datum plain, int32 typmod, bool is_explicit)
{
	if (typmod < 0 || !OidIsValid(type->base_coerce.fn_oid))
		return plain;
	if (type->base_coerce.fn_nargs == 3)
		return FunctionCall3(&type->base_coerce, plain, Int32GetDatum(typmod), BoolGetDatum(is_explicit));
	return FunctionCall2(&type->base_coerce, plain, Int32GetDatum(typmod));
}

static Datum
cast_seal(FunctionCallInfo fcinfo, SealedType *type, Datum plain)
{
	if (PG_NARGS() > 1)
		plain = coerce_base(type, plain, PG_GETARG_INT32(1), PG_NARGS() > 2 && PG_GETARG_BOOL(2));
	return pgseal_seal(type, plain);
}

/* (base [, typmod, explicit]) to sealed */
Datum
pgseal_cast_seal(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(cast_seal(fcinfo, pgseal_type_of_result(fcinfo), PG_GETARG_DATUM(0)));
}

/*
 * (another plain type [, typmod, explicit]) to sealed, by PostgreSQL's explicit cast to the base
 * type.  It is in C because the planner would make an executor for each constant that goes through
 * a function in SQL.
 */
Datum
pgseal_cast_from(PG_FUNCTION_ARGS)
{
	SealedType *type = pgseal_type_of_result(fcinfo);
	CallSite   *site = pgseal_call_site(fcinfo);
	Datum		plain = PG_GETARG_DATUM(0);

	if (unlikely(!OidIsValid(site->left)))
	{
		Oid		   *args;
		int			nargs;
		Oid			function;
		CoercionPathType path;

		(void) get_func_signature(fcinfo->flinfo->fn_oid, &args, &nargs);
		path = find_coercion_pathway(type->base, args[0], COERCION_EXPLICIT, &function);
		if (path == COERCION_PATH_FUNC)
			fmgr_info_cxt(function, &site->cmp, fcinfo->flinfo->fn_mcxt);
		if (path == COERCION_PATH_FUNC ? site->cmp.fn_nargs != 1 : path != COERCION_PATH_RELABELTYPE)
			elog(ERROR, "pgseal: no cast from %s to %s", format_type_be(args[0]), format_type_be(type->base));
		site->left = args[0];
	}
	if (OidIsValid(site->cmp.fn_oid))
		plain = FunctionCall1Coll(&site->cmp, PG_GET_COLLATION(), plain);
	PG_RETURN_DATUM(cast_seal(fcinfo, type, plain));
}

/* sealed to base */
Datum
pgseal_cast_open(PG_FUNCTION_ARGS)
{
	SealedType *type = pgseal_type_of_argument(fcinfo);

	if (unlikely(!may_open(type)))
	{
		if (type->domain->mask)
			PG_RETURN_NULL();
		pgseal_denied(type);
	}
	PG_RETURN_DATUM(pgseal_open(type, PG_GETARG_DATUM(0)));
}

/*
 * Whether the argument of a length coercion is a value that the statement brings along: a literal,
 * a parameter, or a plain value that a cast seals.
 */
static bool
brought_along(FunctionCallInfo fcinfo)
{
	Node	   *expr = fcinfo->flinfo->fn_expr;
	Node	   *arg;
	FuncExpr   *seal;

	if (expr == NULL || !IsA(expr, FuncExpr) || ((FuncExpr *) expr)->args == NIL)
		return false;
	arg = linitial(((FuncExpr *) expr)->args);
	if (IsA(arg, Const) || (IsA(arg, Param) && ((Param *) arg)->paramkind == PARAM_EXTERN))
		return true;
	if (!IsA(arg, FuncExpr))
		return false;
	seal = (FuncExpr *) arg;
	return (seal->funcformat == COERCE_EXPLICIT_CAST || seal->funcformat == COERCE_IMPLICIT_CAST) &&
		seal->args != NIL && !pgseal_is_sealed(exprType(linitial(seal->args)));
}

/*
 * sealed to sealed with another precision.  Whether a value fits and what it is rounded to reveals
 * something of it, so this takes the right to decrypt.  An INSERT works without the right if the
 * statement itself contains the value.
 */
Datum
pgseal_typmod(PG_FUNCTION_ARGS)
{
	SealedType *type = pgseal_type_of_argument(fcinfo);
	Datum		sealed = PG_GETARG_DATUM(0);
	int32		typmod = PG_GETARG_INT32(1);

	/* pgseal.rotate() writes the same values again, with session_replication_role = replica. */
	if (typmod < 0 || SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		PG_RETURN_DATUM(sealed);
	if (unlikely(!may_open(type)))
	{
		/*
		 * The plain value of a literal in the sealed form is not known: it is stored as it is, as
		 * COPY does.
		 */
		if (!PG_GETARG_BOOL(2) && pgseal_format == FORM_SEALED)
			PG_RETURN_DATUM(sealed);
		if (PG_GETARG_BOOL(2) && type->domain->mask)
			PG_RETURN_NULL();
		if (PG_GETARG_BOOL(2) || !brought_along(fcinfo))
			pgseal_denied(type);
	}
	PG_RETURN_DATUM(pgseal_seal(type, coerce_base(type, pgseal_open(type, sealed), typmod, PG_GETARG_BOOL(2))));
}

/* sealed_numeric(precision, scale) */
Datum
pgseal_numeric_typmod_in(PG_FUNCTION_ARGS)
{
	int32		typmod = DatumGetInt32(DirectFunctionCall1(numerictypmodin, PG_GETARG_DATUM(0)));
	int			precision = ((typmod - VARHDRSZ) >> 16) & 0xFFFF;
	int			scale = (((typmod - VARHDRSZ) & 0x7FF) ^ 1024) - 1024;

	if (precision > 16 || scale < 0 || scale > 15)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a format-preserving numeric has a precision up to 16 and a scale from 0 to 15, not (%d,%d)",
						precision, scale),
				 errhint("Use sealed_numeric_wide.")));
	PG_RETURN_INT32(typmod);
}
