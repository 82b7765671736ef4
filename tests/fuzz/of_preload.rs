// The modules of the library that `preload.rs` needs, and `preload.rs`; fuzz targets include this
// text.

#[allow(dead_code)]
#[path = "../../server/pgseal-preload/src/os/linker.rs"]
mod linker;
#[allow(dead_code)]
#[path = "../../server/pgseal-preload/src/os/module.rs"]
mod module;
#[allow(dead_code)]
#[path = "../../server/pgseal-preload/src/os/paths.rs"]
mod paths;
#[allow(dead_code)]
#[path = "../../server/pgseal-preload/src/place/texts.rs"]
mod texts;
#[allow(dead_code)]
#[path = "preload.rs"]
mod bodies;
