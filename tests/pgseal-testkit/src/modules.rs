//! Which modules of a crate use each other, read from its source.
//!
//! A module counts if a chain of `mod` items from the crate's root declares it, and not for tests
//! only. A module uses the modules that its paths name: the paths of `use`, and the paths in its
//! code that begin with `crate`, `super`, `self` or a module below it. A re-export (`pub use`) does
//! not count as a use: a module that uses the re-exported name uses the module that defines it.
//! Inline modules belong to their file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A module's path, without the leading `crate`; empty for the root.
type Name = Vec<String>;

#[derive(Default)]
struct Module {
    /// The paths in its code, as they are written.
    paths: Vec<Name>,
    /// The re-exported names, each with its path as written.
    exports: BTreeMap<String, Name>,
}

/// The modules of a crate, and what each of them uses.
pub struct Modules {
    modules: BTreeMap<Name, Module>,
}

impl Modules {
    /// Reads the crate whose root is this file (`src/lib.rs`, `src/main.rs`).
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Modules> {
        let mut all = Modules { modules: BTreeMap::new() };
        let dir = root.parent().unwrap_or(Path::new("."));
        all.read_file(root, dir, Vec::new())?;
        Ok(all)
    }

    /// The number of modules.
    pub fn count(&self) -> usize {
        self.modules.len()
    }

    /// Reads one file and the modules below it; `dir` is the directory of those modules' files.
    fn read_file(&mut self, path: &Path, dir: &Path, name: Name) -> io::Result<()> {
        let text = fs::read_to_string(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let code = code_of(&text);
        let (module, below) = parse(&code);
        self.modules.insert(name.clone(), module);
        for (word, file) in below {
            let named = file.map(|file| path.parent().unwrap_or(dir).join(file));
            let files = [dir.join(&word).with_extension("rs"), dir.join(&word).join("mod.rs")];
            let [beside, inside] = files;
            let file = named.unwrap_or(if beside.is_file() { beside } else { inside });
            let name = [name.as_slice(), std::slice::from_ref(&word)].concat();
            self.read_file(&file, &dir.join(&word), name)?;
        }
        Ok(())
    }

    /// The module that a path used in module `from` leads to; `None` if it is in another crate.
    /// `depth` is the number of re-exports followed; more than 8 are a circle of re-exports, or a
    /// name of another crate that is re-exported under its own name.
    fn resolve(&self, from: &Name, path: &[String], depth: usize) -> Option<Name> {
        if depth > 8 {
            return None;
        }
        let ups = path.iter().take_while(|word| *word == "super").count();
        let mut at = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => from.get(..from.len().checked_sub(ups)?)?.to_vec(),
            word => {
                let below = [from.as_slice(), &[word.to_owned()]].concat();
                if self.modules.contains_key(&below) {
                    below
                } else {
                    // A name that is re-exported here, or a name of another crate.
                    let export = self.modules.get(from)?.exports.get(word)?;
                    return self.resolve(from, export, depth + 1);
                }
            }
        };
        for word in path.iter().skip(ups.max(1)) {
            let below = [at.as_slice(), std::slice::from_ref(word)].concat();
            if self.modules.contains_key(&below) {
                at = below;
                continue;
            }
            let export = self.modules.get(&at).and_then(|module| module.exports.get(word));
            if let Some(export) = export
                && let Some(found) = self.resolve(&at, export, depth + 1)
            {
                return Some(found);
            }
            break;
        }
        Some(at)
    }

    /// For each module the modules that it uses, all with their paths, for example
    /// `crate::file::paged`.
    pub fn uses(&self) -> BTreeMap<String, BTreeSet<String>> {
        let shown_all = |used: BTreeSet<Name>| used.iter().map(shown).collect();
        self.used().into_iter().map(|(name, used)| (shown(name), shown_all(used))).collect()
    }

    fn used(&self) -> BTreeMap<&Name, BTreeSet<Name>> {
        let used = |name: &Name, module: &Module| {
            let found = module.paths.iter().filter_map(|path| self.resolve(name, path, 0));
            found.filter(|other| other != name).collect()
        };
        self.modules.iter().map(|(name, module)| (name, used(name, module))).collect()
    }

    /// The groups of modules with cyclic uses: each with the paths of its modules, for example
    /// `crate::file::paged`.
    pub fn circles(&self) -> Vec<BTreeSet<String>> {
        let uses = self.used();
        let reached = |start: &Name| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![start.clone()]);
            while let Some(name) = next.pop() {
                for other in uses.get(&name).into_iter().flatten() {
                    if seen.insert(other.clone()) {
                        next.push(other.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Name, BTreeSet<Name>> =
            self.modules.keys().map(|name| (name, reached(name))).collect();
        let mut circles = BTreeSet::new();
        for (name, others) in &reached {
            let back = others.iter().filter(|other| reached[other].contains(*name));
            let circle: BTreeSet<String> = back.map(shown).collect();
            if !circle.is_empty() {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }
}

fn shown(name: &Name) -> String {
    std::iter::once("crate").chain(name.iter().map(String::as_str)).collect::<Vec<_>>().join("::")
}

/// The code of a file, without its comments and its unit tests.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Parses a file: the module, and the modules that it declares, each with the file of `#[path]`.
fn parse(code: &str) -> (Module, Vec<(String, Option<PathBuf>)>) {
    let mut module = Module::default();
    let mut below = Vec::new();
    let mut others = String::new();
    let (mut is_test, mut file) = (false, None);
    let mut rest = code;
    while let Some(line) = rest.lines().next() {
        let item = line.trim_start();
        let length = line.len().min(rest.len());
        let is_public = item.starts_with("pub");
        let item = after_visibility(item);
        if let Some(word) = item.strip_prefix("mod ").and_then(|word| word.strip_suffix(';')) {
            if !is_test {
                below.push((word.to_owned(), file.take()));
            }
        } else if let Some(tree) = item.strip_prefix("use ") {
            let start = rest.len() - rest.trim_start().len() + line.trim_start().len() - tree.len();
            let end = rest[start..].find(';').map_or(rest.len(), |end| start + end);
            for path in paths(&rest[start..end]) {
                if is_public && !is_test {
                    let name = path.alias.or(path.words.last().cloned()).unwrap_or_default();
                    module.exports.insert(name, path.words);
                } else if !is_test {
                    module.paths.push(path.words);
                }
            }
            rest = rest[end..].split_once('\n').map_or("", |(_, rest)| rest);
            (is_test, file) = (false, None);
            continue;
        } else {
            others.push_str(line);
            others.push('\n');
        }
        if item.starts_with("#[") {
            is_test |= item.starts_with("#[cfg(test)]");
            if let Some(path) = item.strip_prefix("#[path = \"") {
                file = path.split('"').next().map(PathBuf::from);
            }
        } else if !item.is_empty() {
            (is_test, file) = (false, None);
        }
        rest = rest[length..].strip_prefix('\n').unwrap_or_default();
    }
    module.paths.extend(paths_in_code(&others));
    (module, below)
}

/// The item behind `pub` or `pub(crate)`.
fn after_visibility(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else { return item };
    match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ").map_or(item, |(_, rest)| rest),
        None => rest.strip_prefix(' ').unwrap_or(item),
    }
}

struct UsePath {
    words: Name,
    alias: Option<String>,
}

/// The paths in the tree of a `use`.
fn paths(tree: &str) -> Vec<UsePath> {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else {
        let (path, alias) = match tree.split_once(" as ") {
            Some((path, alias)) => (path, Some(alias.trim().to_owned())),
            None => (tree, None),
        };
        let words = path.trim().split("::").filter(|word| !word.is_empty());
        let words: Name = words.map(str::to_owned).collect();
        return if words.is_empty() { Vec::new() } else { vec![UsePath { words, alias }] };
    };
    let before: Name = before
        .split("::")
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, letter) in group.char_indices().chain([(group.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(paths(&group[start..at]));
                start = (at + 1).min(group.len());
            }
            _ => {}
        }
    }
    for path in &mut found {
        path.words.retain(|word| word != "self");
        path.words.splice(0..0, before.iter().cloned());
    }
    found
}

/// All paths with at least two segments.
fn paths_in_code(code: &str) -> Vec<Name> {
    let mut found = Vec::new();
    for piece in code.split(|letter: char| !is_of_word(letter) && letter != ':') {
        let words: Name =
            piece.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect();
        if piece.contains("::") && !piece.starts_with(':') && words.len() > 1 {
            found.push(words);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let modules = Modules::read(&dir.path().join("lib.rs")).unwrap();
        modules.circles().into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let root = ("lib.rs", "mod a;\npub(crate) mod b;\n");
        let one_way = [root, ("a.rs", "use crate::b::{self, X};\n"), ("b.rs", "pub struct X;\n")];
        assert!(circles(&one_way).is_empty());
        let back = "fn f() { let _ = super::a::g(); }\n";
        let both = [root, ("a.rs", "use crate::{\n    b::{Y as Z},\n};\n"), ("b.rs", back)];
        assert_eq!(circles(&both), [["crate::a", "crate::b"]]);
        let in_tests = format!("#[cfg(test)]\nmod tests {{\n{back}}}\n");
        assert!(circles(&[root, ("a.rs", "use crate::b;\n"), ("b.rs", &in_tests)]).is_empty());
        let in_comment = [root, ("a.rs", "use crate::b;\n"), ("b.rs", "// crate::a::f\n")];
        assert!(circles(&in_comment).is_empty());
    }

    #[test]
    fn a_name_that_is_re_exported_is_that_of_its_module() {
        let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;\nfn f() { b::f() }\n");
        assert!(circles(&[root, ("a.rs", ""), ("b.rs", "use crate::A;\n")]).is_empty());
        assert_eq!(
            circles(&[root, ("a.rs", "use crate::b::B;\n"), ("b.rs", "use crate::A;\n")]),
            [["crate::a", "crate::b"]]
        );
        // An item defined in the root belongs to the root.
        let found = circles(&[root, ("a.rs", ""), ("b.rs", "use crate::C;\n")]);
        assert_eq!(found, [["crate", "crate::b"]]);
    }

    #[test]
    fn folders_and_named_files_are_found_and_modules_for_tests_left_out() {
        let files = [
            ("lib.rs", "mod x;\n#[cfg(test)]\n#[path = \"other.rs\"]\nmod y;\n"),
            ("x.rs", "mod z;\n#[path = \"named.rs\"]\nmod w;\n"),
            ("x/z.rs", "use super::w::f;\n"),
            ("named.rs", "use crate::x::z;\n"),
        ];
        assert_eq!(circles(&files), [["crate::x::w", "crate::x::z"]]);
    }
}
