/*-------------------------------------------------------------------------
 *
 * late.c
 *		Whether the module was loaded in the middle of the present transaction:
 *		statements planned before that were not looked at by planner.c.
 *
 * May use: nothing of the module.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "postmaster/autovacuum.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/plancache.h"
#include "utils/portal.h"

#if PG_VERSION_NUM >= 170000
#define AUTOVACUUM_WORKER() AmAutoVacuumWorkerProcess()
#else
#define AUTOVACUUM_WORKER() IsAutoVacuumWorkerProcess()
#endif

/*
 * Start of the transaction that loaded the module; 0: the module was loaded outside of a
 * transaction.
 */
static TimestampTz late_xact = 0;

void
pgseal_late_init(void)
{
	if (!IsTransactionState() || InitializingParallelWorker)
		return;
	late_xact = GetCurrentTransactionStartTimestamp();
	/* planner.c has not looked at plans made before. */
	ResetPlanCache();
}

/*
 * Whether a sort may belong to a query that was planned before the module was loaded, so that
 * planner.c could not make its ORDER BY sort by plain values.
 */
bool
pgseal_loaded_late(void)
{
	PlannedStmt *stmt;

	if (late_xact == 0 || late_xact != GetCurrentTransactionStartTimestamp() || AUTOVACUUM_WORKER())
		return false;
	/* Index builds and other utility statements sort by ciphertext on purpose. */
	if (ActivePortal != NULL && list_length(ActivePortal->stmts) == 1)
	{
		stmt = linitial_node(PlannedStmt, ActivePortal->stmts);
		if (stmt->commandType == CMD_UTILITY && stmt->utilityStmt != NULL)
		{
			switch (nodeTag(stmt->utilityStmt))
			{
				case T_IndexStmt:
				case T_ReindexStmt:
				case T_ClusterStmt:
				case T_VacuumStmt:
				case T_AlterTableStmt:
				case T_CreateStmt:
					return false;
				default:
					break;
			}
		}
	}
	return true;
}
