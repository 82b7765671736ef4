//! How much of an experiment is measured:
//! `tools/pgseal-lab/profiles/EXPERIMENT-{tiny,quick,full}.toml`, or a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::LabError;
use crate::experiments::Experiment;

/// Sizes and lengths of one experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// `tiny`, `quick`, `full`, or the name of a file without directory and extension.
    #[serde(skip)]
    pub name: String,
    /// One sentence: the purpose of the profile and its duration.
    #[serde(default)]
    pub about: String,
    /// How many rounds count.
    pub rounds: u32,
    /// How many warm-up rounds precede; they do not count.
    #[serde(default = "one")]
    pub warmups: u32,
    /// Seed of the order of arms in each round.
    #[serde(default = "seed")]
    pub seed: u64,
    /// Parameters of the experiment; see [`Profile::parameters`].
    #[serde(default)]
    pub parameters: BTreeMap<String, Value>,
}

fn one() -> u32 {
    1
}

fn seed() -> u64 {
    20_130_523
}

impl Profile {
    /// Loads the profile of this name that comes with pgseal, or a file if the name contains `/` or
    /// ends in `.toml`.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if there is no such profile or it cannot be understood;
    /// [`LabError::Io`] if the file cannot be read.
    pub fn load(experiment: &dyn Experiment, name: &str) -> Result<Self, LabError> {
        if name.contains('/') || name.ends_with(".toml") {
            let path = Path::new(name);
            let text = fs::read_to_string(path).map_err(LabError::io(path, "read the profile"))?;
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            return Self::parse(&stem.unwrap_or_default(), &text, name);
        }
        let known = experiment.profiles();
        match known.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(name, text, name),
            None => Err(LabError::Usage(format!(
                "{name}: {} has no such profile; it has {}, or give a file that ends in .toml",
                experiment.name(),
                known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    fn parse(name: &str, text: &str, shown: &str) -> Result<Self, LabError> {
        let mut profile: Self = toml::from_str(text).map_err(|error| {
            LabError::Usage(format!("{shown}: profile not understood: {error}"))
        })?;
        profile.name = name.to_owned();
        if profile.rounds == 0 {
            return Err(LabError::Usage(format!("{shown}: rounds must be 1 or more")));
        }
        Ok(profile)
    }

    /// Sets one parameter, as `--set NAME=VALUE` does. The value is parsed as TOML; a value that is
    /// not TOML is taken as a string.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if there is no `=`.
    pub fn set(&mut self, assignment: &str) -> Result<(), LabError> {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| LabError::Usage(format!("--set {assignment}: want NAME=VALUE")))?;
        let one: Result<BTreeMap<String, Value>, _> = toml::from_str(&format!("v = {value}\n"));
        let value = one.ok().and_then(|mut one| one.remove("v"));
        let value =
            value.unwrap_or_else(|| Value::from(assignment.split_once('=').map_or("", |(_, v)| v)));
        self.parameters.insert(name.trim().to_owned(), value);
        if !self.name.ends_with('*') {
            self.name.push('*');
        }
        Ok(())
    }

    /// The parameters as the experiment's own type, which should deny unknown fields.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], whose text names what is wrong.
    pub fn parameters<T: DeserializeOwned>(&self) -> Result<T, LabError> {
        let members = self.parameters.clone().into_iter().collect();
        serde_json::from_value(Value::Object(members)).map_err(|error| {
            LabError::Usage(format!("profile {}: [parameters]: {error}", self.name))
        })
    }
}
