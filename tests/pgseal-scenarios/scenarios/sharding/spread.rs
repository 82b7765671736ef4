//! A table that `postgres_fdw` spreads over two shards, and clients that write to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use pgseal_scenarios::files::wait_for;
use pgseal_scenarios::{Node, programs};
use pgseal_testkit::{Cluster, Sealing};

/// In every row.
pub const MARKER: &str = "canary-shards-Zq7x";
/// The columns of `orders`, on the front and on the shards.
pub const COLUMNS: &str =
    "(customer int not null, id bigint not null, amount numeric, moves int, note text)";
/// The table `orders` in one line.
pub const SUM: &str =
    "select count(*), sum(amount), sum(hashtextextended(o::text, 3)::numeric) from orders o";

const CUSTOMERS: u64 = 1000;

/// A running server with a key of its own. `settings`: lines of `postgresql.conf`.
pub fn server(suite: &str, key: &str, settings: impl Fn(&Node) -> String) -> Node {
    let sealing = Sealing { suite: suite.to_owned(), key: key.repeat(32) };
    let builder = Cluster::builder().sealed(sealing).programs(programs());
    let mut node = Node::create(builder, &[("max_prepared_transactions", "8")]);
    node.configure(&settings(&node));
    node.start();
    node.sql("create extension amcheck");
    node
}

/// Three sealed servers with three keys and three suites: the one that clients talk to, and two
/// shards with 4000 rows of `orders`, each with the amount 100.
pub struct Spread {
    pub front: Node,
    pub shards: Vec<Node>,
}

impl Spread {
    pub fn new(settings: impl Fn(&Node) -> String) -> Spread {
        let shards =
            vec![server("aes-256-gcm", "1a", &settings), server("aes-256-xts", "2b", &settings)];
        let front = server("aes-256-gcm", "3c", &settings);
        front.sql(&format!(
            "create extension postgres_fdw;; create table orders {COLUMNS} partition by hash (customer);;
             create table customers (id int primary key, name text);;
             insert into customers select g, '{MARKER} ' || g from generate_series(1, {CUSTOMERS}) g;;
             analyze customers"
        ));
        for (n, shard) in shards.iter().enumerate() {
            shard.sql(&format!(
                "create table orders_{n} {COLUMNS};; \
                 alter table orders_{n} add primary key (customer, id)"
            ));
            front.sql(&create_server(n, shard));
            front.sql(&create_part(n, n));
        }
        front.sql(&format!(
            "insert into orders select g % {CUSTOMERS} + 1, g, 100, 0, '{MARKER} order ' || g \
             from generate_series(1, 4000) g"
        ));
        Spread { front, shards }
    }

    /// The front, and then the shards.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.front).chain(&self.shards)
    }

    pub fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        std::iter::once(&mut self.front).chain(&mut self.shards)
    }
}

/// The statements that make the front know a shard as the server `shard_N`.
pub fn create_server(n: usize, shard: &Node) -> String {
    format!(
        "create server shard_{n} foreign data wrapper postgres_fdw options \
           (host '{}', port '{}', dbname 'postgres', fetch_size '5000', batch_size '500', \
            async_capable 'true', use_remote_estimate 'true');;
         create user mapping for postgres server shard_{n} options (user 'postgres')",
        shard.home().display(),
        shard.port()
    )
}

/// The statement that makes the table `orders_N` of a shard a part of `orders`.
pub fn create_part(n: usize, shard: usize) -> String {
    format!(
        "create foreign table orders_{n} partition of orders \
         for values with (modulus 2, remainder {n}) server shard_{shard}"
    )
}

/// Clients of the front, each of which moves amounts between customers on both shards.
pub struct Transfers {
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Transfers {
    pub fn start(front: &Node) -> Transfers {
        let (stop, committed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let clients = (0..2).map(|client| {
            let (stop, committed) = (Arc::clone(&stop), Arc::clone(&committed));
            let mut session = front.session();
            thread::spawn(move || {
                // Each client has customers of its own: a deadlock between shards is seen by none.
                let own = CUSTOMERS / 2;
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let from = client * own + n * 7 % own + 1;
                    let to = client * own + (n * 7 + 1) % own + 1;
                    let change = |customer, by| {
                        format!(
                            "update orders set amount = amount {by}, moves = moves + 1 \
                             where customer = {customer} and id % 4000 = {customer} - 1;"
                        )
                    };
                    session.sql(&format!(
                        "begin; {} {} commit",
                        change(from, "- 1"),
                        change(to, "+ 1")
                    ));
                    committed.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Transfers { clients: clients.collect(), stop, committed }
    }

    /// Waits until this many transfers more are committed.
    #[track_caller]
    pub fn wait_for(&self, more: u64) {
        let wanted = self.committed.load(Ordering::Relaxed) + more;
        wait_for("transfers", || self.committed.load(Ordering::Relaxed) >= wanted);
    }

    /// Ends the clients, and returns how many transfers were committed.
    pub fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("a client failed");
        }
        self.committed.load(Ordering::Relaxed)
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        // A test that fails meanwhile ends its clients.
        self.stop.store(true, Ordering::Relaxed);
    }
}
