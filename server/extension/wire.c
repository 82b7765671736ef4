/*-------------------------------------------------------------------------
 *
 * wire.c
 *		Base types instead of sealed types in results and parameters, for drivers.
 *
 * A driver does not know the sealed types and handles their values as strings.
 * With pgseal.base_types = on, statements that a client sends have results and
 * parameters of the base types: casts are put around both after parse analysis,
 * before the types are sent to the client.  Statements of functions and views and
 * utility statements stay as they are.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "parser/parse_node.h"
#include "parser/parse_param.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"

/* As in parse_param.c: the types of parameters that the client did not specify. */
typedef struct VarParamState
{
	Oid		  **paramTypes;
	int		   *numParams;
} VarParamState;

typedef struct ParamsContext
{
	ParseState *pstate;
	VarParamState *state;
} ParamsContext;

/*
 * The base type of a sealed type, or the array of it for an array; InvalidOid for any other type.
 */
static Oid
base_type_of(Oid oid, bool for_result)
{
	SealedType *type;
	Oid			element;

	if (oid < FirstNormalObjectId)
		return InvalidOid;
	type = pgseal_type_or_null(oid);
	if (type != NULL)
	{
		/* A role without the right gets what it always gets: an error, or a mask. */
		if (for_result && (type->domain == NULL || !pgseal_may_decrypt(type->domain)))
			return InvalidOid;
		return type->base;
	}
	element = get_element_type(oid);
	if (OidIsValid(element) && OidIsValid(element = base_type_of(element, for_result)))
		return get_array_type(element);
	return InvalidOid;
}

/* ---- parameters ---- */

static Node *
replace_params(Node *node, void *data)
{
	ParamsContext *context = data;

	if (node == NULL)
		return NULL;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXTERN)
	{
		Param	   *param = (Param *) node;
		Oid			base = base_type_of(param->paramtype, false);
		Oid			sealed = param->paramtype;
		Param	   *plain;
		Node	   *cast;

		if (!OidIsValid(base) || param->paramid < 1 || param->paramid > *context->state->numParams)
			return node;
		plain = copyObject(param);
		plain->paramtype = base;
		plain->paramtypmod = -1;
		plain->paramcollid = get_typcollation(base);
		cast = coerce_to_target_type(context->pstate, (Node *) plain, base, sealed, -1, COERCION_ASSIGNMENT,
									 COERCE_IMPLICIT_CAST, -1);
		if (cast == NULL)
			return node;
		(*context->state->paramTypes)[param->paramid - 1] = base;
		return cast;
	}
	if (IsA(node, Query))
		return (Node *) query_tree_mutator((Query *) node, replace_params, data, QTW_DONT_COPY_QUERY);
	return expression_tree_mutator(node, replace_params, data);
}

/* ---- results ---- */

static Node *
opened(ParseState *pstate, Node *expr, Oid base)
{
	return coerce_to_target_type(pstate, expr, exprType(expr), base, -1, COERCION_EXPLICIT, COERCE_IMPLICIT_CAST, -1);
}

/*
 * Puts casts around a list of results.  A column that is sorted or grouped by stays as a hidden
 * column at the end of the list; the visible column is a cast of it.
 */
static List *
open_results(ParseState *pstate, List *results)
{
	List	   *hidden = NIL;
	int			next = list_length(results) + 1;
	ListCell   *cell;

	foreach(cell, results)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);
		Oid			base = entry->resjunk ? InvalidOid : base_type_of(exprType((Node *) entry->expr), true);
		Node	   *cast;

		if (!OidIsValid(base) || (cast = opened(pstate, copyObject((Node *) entry->expr), base)) == NULL)
			continue;
		if (entry->ressortgroupref != 0)
		{
			TargetEntry *kept = flatCopyTargetEntry(entry);

			kept->resjunk = true;
			kept->resname = NULL;
			kept->resno = next++;
			kept->resorigtbl = InvalidOid;
			kept->resorigcol = 0;
			hidden = lappend(hidden, kept);
			entry->ressortgroupref = 0;
		}
		entry->expr = (Expr *) cast;
	}
	return list_concat(results, hidden);
}

/*
 * Whether the client sent the statement: it is not part of a function, a view or a utility
 * statement.
 */
static bool
is_clients(ParseState *pstate)
{
	return MyBackendType == B_BACKEND && ActivePortal == NULL && pstate->p_pre_columnref_hook == NULL &&
		pstate->p_post_columnref_hook == NULL && pstate->parentParseState == NULL;
}

void
pgseal_base_types_on_the_wire(ParseState *pstate, Query *query)
{
	if (!pgseal_base_types || pgseal_format == FORM_SEALED || query->commandType == CMD_UTILITY || !is_clients(pstate))
		return;
	if (pstate->p_ref_hook_state != NULL && pstate->p_coerce_param_hook != NULL)
	{
		ParamsContext context = {pstate, pstate->p_ref_hook_state};

		(void) replace_params((Node *) query, &context);
	}
	/*
	 * UNION, INTERSECT, EXCEPT and DISTINCT compare ciphertext.  Their results are opened only by a
	 * SELECT around them.
	 */
	if (query->commandType == CMD_SELECT && query->setOperations == NULL && query->distinctClause == NIL)
		query->targetList = open_results(pstate, query->targetList);
	else if (query->commandType != CMD_SELECT)
		query->returningList = open_results(pstate, query->returningList);
}
