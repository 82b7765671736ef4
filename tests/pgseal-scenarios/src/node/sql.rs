//! SQL on a node, through psql.

use std::time::Duration;

use pgseal_cluster::Patience;

use super::Node;
use crate::programs::not_applicable;
use crate::session::Session;

impl Node {
    /// Runs SQL; rows unaligned, without headings.
    ///
    /// # Errors
    /// What psql and the server said.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        self.try_sql_in("postgres", sql)
    }

    /// Like [`Node::try_sql`], in another database.
    ///
    /// # Errors
    /// What psql and the server said.
    pub fn try_sql_in(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut command = self.bare("psql");
        command.env("PGDATABASE", database);
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]);
        for statement in sql.split(";;") {
            command.args(["-c", statement]);
        }
        let output = command.output().expect("psql runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let rows = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if output.status.success() { Ok(rows) } else { Err(said) }
    }

    /// Runs SQL that must succeed. `;;` separates statements that need transactions of their own.
    ///
    /// # Panics
    /// With what psql said.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}\n{error}\n{}", self.log()))
    }

    /// Runs SQL that must succeed in another database.
    ///
    /// # Panics
    /// With what psql said.
    #[track_caller]
    pub fn sql_in(&self, database: &str, sql: &str) -> String {
        let said = self.try_sql_in(database, sql);
        said.unwrap_or_else(|error| panic!("{database}: {sql}\n{error}\n{}", self.log()))
    }

    /// Runs a query ten times a second until its answer is true.
    ///
    /// # Panics
    /// When the answer is not true within a minute.
    #[track_caller]
    pub fn wait_until(&self, sql: &str) {
        let patience = Patience::every(Duration::from_millis(100), 60);
        let is_true = || self.try_sql(sql).as_deref() == Ok("t");
        assert!(patience.wait_until(is_true), "waited in vain: {sql}\n{}", self.log());
    }

    /// A connection that stays open.
    #[must_use]
    pub fn session(&self) -> Session {
        let mut command = self.bare("psql");
        command.args(["-X", "-A", "-t", "-q"]);
        Session::open(command)
    }

    /// Whether these extensions can be created here. The distribution's own server must have them.
    /// Another server, unpacked beside it, may lack them; then `test` does not apply and is
    /// reported so ([`not_applicable`]).
    ///
    /// # Panics
    /// When the distribution's own server lacks one.
    #[must_use]
    pub fn has_extensions(&self, names: &[&str], test: &str) -> bool {
        let there = self.sql("select name from pg_available_extensions");
        let is_own = self.bindir.starts_with("/usr/lib/postgresql");
        // Another server may have the SQL files of an extension and lack its library.
        let loads = |name: &str| {
            let create = format!("create extension if not exists \"{name}\" cascade");
            let tried = self.try_sql(&format!("do $$ begin {create}; raise 'undone'; end $$"));
            tried.is_err_and(|said| said.contains("undone"))
        };
        let lacks =
            |name: &&&str| !there.lines().any(|line| line == **name) || !(is_own || loads(name));
        let missing: Vec<&str> = names.iter().filter(lacks).copied().collect();
        if missing.is_empty() {
            return true;
        }
        let (bindir, missing) = (self.bindir.display(), missing.join(", "));
        assert!(!is_own, "{bindir}: no extension {missing}; run scripts/setup.sh test scenarios");
        not_applicable(test, &format!("this server has no {missing}"));
        false
    }

    /// The path of a relation's first segment, in the data directory.
    #[must_use]
    pub fn relation(&self, name: &str) -> String {
        self.sql(&format!("select pg_relation_filepath('{name}')"))
    }
}
