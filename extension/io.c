/*-------------------------------------------------------------------------
 *
 * io.c
 *		Input, output and casts of every sealed type.
 *
 * One set of C functions serves all types; the SQL function that is called
 * says which type it is.
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

/* How a sealed value looks outside the server with pgseal.format = sealed. */
#define TEXT_MARK "pgseal:1:"
#define TEXT_MARK_LEN 9
#define BINARY_MARK "PGSEAL1\n"
#define BINARY_MARK_LEN 8
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

/* ---- the sealed form ---- */

static size_t
fixed_len(SealedType *type)
{
	return type->layout == LAYOUT_VARLENA ? 0 : type->layout == LAYOUT_INT4 ? 4 : 8;
}

/*
 * The type of a result, also while a dump is restored and the catalog of pgseal is not there yet: then only
 * its name and length are known.
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

/* A datum from the bytes of the sealed form: checked as far as it goes without a key. */
static Datum
datum_of_bytes(SealedType *type, const uint8 *bytes, size_t len)
{
	uint64		value = 0;
	struct varlena *result;
	int			mode;
	size_t		suffix = type->mode == SEAL_DETERMINISTIC && type->base == NUMERICOID ? 2 : 0;

	if (type->layout == LAYOUT_VARLENA)
	{
		if (OidIsValid(type->base) &&
			(len < suffix ||
			 pgseal_column_inspect(bytes, len - suffix, &mode, NULL, NULL) != PGSEAL_COLUMN_OK ||
			 mode != (type->mode == SEAL_RANDOM ? PGSEAL_COLUMN_MODE_RND : PGSEAL_COLUMN_MODE_DET)))
			pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "read");
		result = palloc(VARHDRSZ + len);
		SET_VARSIZE(result, VARHDRSZ + len);
		memcpy(VARDATA(result), bytes, len);
		return PointerGetDatum(result);
	}
	if (len != fixed_len(type))
		pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "read");
	for (size_t i = 0; i < len; i++)
		value = value << 8 | bytes[i];
	return len == 4 ? Int32GetDatum((int32) (uint32) value) : Int64GetDatum((int64) value);
}

static const uint8 *
bytes_of_datum(SealedType *type, Datum sealed, uint8 buffer[8], size_t *len)
{
	uint64		value;

	if (type->layout == LAYOUT_VARLENA)
	{
		struct varlena *v = PG_DETOAST_DATUM_PACKED(sealed);

		*len = VARSIZE_ANY_EXHDR(v);
		return (const uint8 *) VARDATA_ANY(v);
	}
	*len = fixed_len(type);
	value = *len == 4 ? (uint32) DatumGetInt32(sealed) : (uint64) DatumGetInt64(sealed);
	for (size_t i = *len; i > 0; i--)
	{
		buffer[i - 1] = (uint8) value;
		value >>= 8;
	}
	return buffer;
}

static Datum
in_sealed_form(SealedType *type, const char *text)
{
	size_t		hex_len = strlen(text);
	uint8	   *bytes;
	size_t		len;

	if (strncmp(text, TEXT_MARK, TEXT_MARK_LEN) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid sealed form of a value of type %s", type->name),
				 errdetail("With pgseal.format = sealed, values are read as ciphertext only."),
				 errhint("SET pgseal.format = plain to give plain values.")));
	text += TEXT_MARK_LEN;
	hex_len -= TEXT_MARK_LEN;
	if (hex_len % 2 != 0 || strspn(text, "0123456789abcdef") != hex_len)
		pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "read");
	len = hex_len / 2;
	bytes = palloc(len + 1);
	hex_decode(text, hex_len, (char *) bytes);
	return datum_of_bytes(type, bytes, len);
}

static void
refuse_sealed_form(SealedType *type)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("value for type %s is in the sealed form, and pgseal.format is plain", type->name),
			 errhint("SET pgseal.format = sealed to load it (PGOPTIONS='-c pgseal.format=sealed'). A plain text that begins like this can be stored with a cast from text.")));
}

/* The text of a plain value may not be one of a sealed form. */
void
pgseal_refuse_sealed_form(SealedType *type, const char *text)
{
	if (unlikely(text[0] == TEXT_MARK[0]) && strncmp(text, TEXT_MARK, TEXT_MARK_LEN) == 0)
		refuse_sealed_form(type);
}

/* ---- text and binary ---- */

Datum
pgseal_in(PG_FUNCTION_ARGS)
{
	char	   *text = PG_GETARG_CSTRING(0);
	int32		typmod = PG_GETARG_INT32(2);

	if (pgseal_format == FORM_SEALED)
		PG_RETURN_DATUM(in_sealed_form(type_of_sealed_form(fcinfo), text));
	PG_RETURN_DATUM(pgseal_seal_text(pgseal_type_of_result(fcinfo), text, typmod, &fcinfo->flinfo->fn_extra));
}

Datum
pgseal_out(PG_FUNCTION_ARGS)
{
	Datum		sealed = PG_GETARG_DATUM(0);
	SealedType *type = pgseal_type_of_argument(fcinfo);

	if (pgseal_format == FORM_SEALED)
	{
		uint8		buffer[8];
		size_t		len;
		const uint8 *bytes = bytes_of_datum(type, sealed, buffer, &len);
		char	   *text = palloc(TEXT_MARK_LEN + 2 * len + 1);

		pgseal_expect_compare(type);
		memcpy(text, TEXT_MARK, TEXT_MARK_LEN);
		hex_encode((const char *) bytes, len, text + TEXT_MARK_LEN);
		text[TEXT_MARK_LEN + 2 * len] = '\0';
		PG_RETURN_CSTRING(text);
	}
	if (!may_open(type))
	{
		if (type->domain->mask)
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
	SealedType *type = pgseal_format == FORM_SEALED ? type_of_sealed_form(fcinfo) : pgseal_type_of_result(fcinfo);
	bool		marked = buf->len - buf->cursor >= BINARY_MARK_LEN &&
		memcmp(buf->data + buf->cursor, BINARY_MARK, BINARY_MARK_LEN) == 0;

	if (pgseal_format == FORM_SEALED)
	{
		size_t		len;

		if (!marked)
			pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "read");
		len = buf->len - buf->cursor - BINARY_MARK_LEN;
		(void) pq_getmsgbytes(buf, BINARY_MARK_LEN);
		PG_RETURN_DATUM(datum_of_bytes(type, (const uint8 *) pq_getmsgbytes(buf, len), len));
	}
	/* A plain number of 8 bytes may look like the mark; only what has something behind it is refused. */
	if (marked && buf->len - buf->cursor > BINARY_MARK_LEN)
		refuse_sealed_form(type);
	PG_RETURN_DATUM(pgseal_seal(type, ReceiveFunctionCall(&type->base_recv, buf, type->base_ioparam, typmod)));
}

Datum
pgseal_send(PG_FUNCTION_ARGS)
{
	Datum		sealed = PG_GETARG_DATUM(0);
	SealedType *type = pgseal_type_of_argument(fcinfo);

	if (pgseal_format == FORM_SEALED)
	{
		StringInfoData buf;
		uint8		buffer[8];
		size_t		len;
		const uint8 *bytes = bytes_of_datum(type, sealed, buffer, &len);

		pgseal_expect_compare(type);
		pq_begintypsend(&buf);
		pq_sendbytes(&buf, BINARY_MARK, BINARY_MARK_LEN);
		pq_sendbytes(&buf, (const void *) bytes, len);
		PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
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
 * (another plain type [, typmod, explicit]) to sealed, by way of PostgreSQL's explicit cast to the base type.  In C,
 * since the planner would make an executor for each constant that goes through a function in SQL.
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
 * Whether the argument of a length coercion is a value that the statement brings along: a literal, a parameter, or a
 * plain value that a cast seals.
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
 * sealed to sealed with another precision.  Whether a value fits, and what it is rounded to, tells about it: this
 * needs the right to decrypt.  Only rows are inserted without, when the statement itself has the value.
 */
Datum
pgseal_typmod(PG_FUNCTION_ARGS)
{
	SealedType *type = pgseal_type_of_argument(fcinfo);
	Datum		sealed = PG_GETARG_DATUM(0);
	int32		typmod = PG_GETARG_INT32(1);

	/* pgseal.rotate() puts back what was there, and switches triggers off for it. */
	if (typmod < 0 || SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		PG_RETURN_DATUM(sealed);
	if (unlikely(!may_open(type)))
	{
		/* A literal in the sealed form is none that the statement knows: it is stored as it is, as COPY does. */
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
