//! `libpgseal.so`: preloaded into PostgreSQL's programs, it shows them plain files and writes
//! sealed ones.
//!
//! The only home of hand-written `unsafe` besides the EVP module of `pgseal-core`. Each hooked call
//! ends in a verdict: seal, pass or refuse; `symbols.rs` is the table, `spec/hooks.md` is made from
//! it.

mod adopt;
pub mod audit;
pub mod calls;
mod changes;
mod config;
mod copies;
mod counters;
mod damage;
mod datadir;
mod fault;
mod fds;
mod file;
#[cfg(test)]
mod fuzz_smoke;
pub mod guard;
mod head;
mod helper;
mod holes;
mod keys;
mod linker;
mod log;
mod mapped;
mod memory;
mod module;
mod paths;
mod program;
mod random;
mod real;
mod search;
mod server;
mod storage;
pub mod symbols;
mod sys;
mod texts;
mod upgrade;
mod vault;
mod verdict;
mod want;
mod window;

/// Runs when the library is loaded, before `main`.
extern "C" fn start() {
    // Also `dlerror`: to look for it when it is called would make it forget.
    real::find_all();
    vault::start();
    if program::active() {
        memory::with_reserve(|| {
            audit::check_program();
            upgrade::check_program();
            copies::check_purpose();
        });
        fds::keep_standard_streams();
    }
    calls::raw::started();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
