//! Options of experiments that measure until their intervals are narrow.

use pgseal_lab::session::Request;

/// When such an experiment ends, and what it compares.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Options of measurements in slices")]
pub struct BlockArgs {
    /// End a load when all its 95 % intervals are no wider than this part of the ratio [default:
    /// 2%]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    until: Option<f64>,
    /// The longest time for each load: 90s, 10min [default: that of the profile]
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    max_time: Option<u64>,
    /// How long an arm works before it is another one's turn [default: 300ms]
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    slice: Option<u64>,
    /// Only these loads; the same as --only
    #[arg(long, value_name = "LOAD", value_delimiter = ',', conflicts_with = "only")]
    loads: Vec<String>,
    /// Suites, each or plain also with -without-checksums behind its name, and gocryptfs; plain and
    /// plain-again are always measured [default: aes-256-gcm]
    #[arg(long, value_name = "ARM", value_delimiter = ',')]
    arms: Vec<String>,
}

impl BlockArgs {
    /// The same as changes of the profile.
    pub fn apply(&self, request: &mut Request) {
        let mut set = |name: &str, value: String| request.set.push(format!("{name}={value}"));
        if let Some(percent) = self.until {
            set("until_percent", format!("{percent:?}"));
        }
        if let Some(ms) = self.max_time {
            set("max_s", format!("{:?}", ms as f64 / 1000.0));
        }
        if let Some(ms) = self.slice {
            set("slice_ms", ms.to_string());
        }
        let suites: Vec<&String> = self.arms.iter().filter(|arm| is_suite(arm)).collect();
        if !self.arms.is_empty() {
            set("suites", format!("{suites:?}"));
            set("gocryptfs", self.arms.iter().any(|arm| arm == "gocryptfs").to_string());
        }
        request.only.extend(self.loads.iter().cloned());
    }
}

fn is_suite(arm: &str) -> bool {
    !["plain", "plain-again", "gocryptfs"].contains(&arm)
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    match number {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("want a number above 0, and %: 2%".to_owned()),
    }
}

/// The units are those of PostgreSQL's settings.
fn milliseconds(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err("want a number and ms, s, min or h: 300ms".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "want a number and a unit: 300ms".to_owned())?;
    number.checked_mul(factor).filter(|ms| *ms > 0).ok_or_else(|| "too long, or nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_parameters_of_the_profile() {
        let args = BlockArgs {
            until: percent("2%").ok(),
            max_time: milliseconds("90s").ok(),
            slice: milliseconds("250ms").ok(),
            loads: vec!["scan".to_owned()],
            arms: ["plain", "plain-again", "aes-256-xts", "plain-without-checksums", "gocryptfs"]
                .map(str::to_owned)
                .to_vec(),
        };
        let mut request = Request::default();
        args.apply(&mut request);
        assert_eq!(
            request.set,
            [
                "until_percent=2.0",
                "max_s=90.0",
                "slice_ms=250",
                "suites=[\"aes-256-xts\", \"plain-without-checksums\"]",
                "gocryptfs=true"
            ]
        );
        assert_eq!(request.only, ["scan"]);
        let mut request = Request::default();
        BlockArgs::default().apply(&mut request);
        assert!(request.set.is_empty() && request.only.is_empty());
        for wrong in ["", "300", "0ms", "ms", "5 years"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
        assert!(percent("0%").is_err() && percent("two").is_err());
    }
}
