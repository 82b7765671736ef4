//! How the file at a place is sealed, and whether a file found there belongs there
//! (`spec/sealed-file.md`, section 3.3). All code that opens, converts or verifies files asks here.

use core::fmt;

use pgseal_core::header::Header;
use pgseal_core::{Form, Layout, Place, Suite, Suites};

use crate::class::Class;
use crate::policy::Policy;

/// Why an authentic file of the cluster does not belong where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misplaced {
    /// It is the file of this other place.
    Place(Place),
    /// It is sealed with this suite and layout, which no file there has.
    Form(Suite, Layout),
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misplaced::Place(place) if place.is_any() => {
                f.write_str("it is bound to no place, as no file here is")
            }
            Misplaced::Place(place) => write!(f, "this is the file of \"{place}\""),
            Misplaced::Form(suite, layout) => {
                write!(f, "it is sealed with {suite} in the {layout} layout, as no file here is")
            }
        }
    }
}

impl Class {
    /// How a file of this class at this place is sealed in a cluster with this suite of relation
    /// files; `None` if files of the class are not sealed.
    #[must_use]
    pub fn form(self, place: Place, suite: Suite) -> Option<Form> {
        let Policy::Seal { kind, .. } = self.policy() else { return None };
        let (suite, layout) = suite.for_kind(kind);
        Some(Form { suite, layout, place })
    }

    /// Why an authentic file with this header does not belong at this place in a cluster whose
    /// relation files may have these suites; `None` if it does, or if the place is [`Place::ANY`].
    #[must_use]
    pub fn misplaced(
        self,
        place: Place,
        suites: impl Into<Suites>,
        header: &Header,
    ) -> Option<Misplaced> {
        if place.is_any() {
            return None;
        }
        if header.place != place {
            return Some(Misplaced::Place(header.place));
        }
        let mut forms = suites.into().all().filter_map(|suite| self.form(place, suite)).peekable();
        forms.peek()?;
        let fits = |form: Form| match self {
            // The suite may have changed since the segment was archived. Another key length is
            // fine.
            Class::Wal => header.layout == form.layout,
            _ => header.form() == form,
        };
        (!forms.any(fits)).then_some(Misplaced::Form(header.suite, header.layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate;
    use pgseal_core::header::Stage;
    use pgseal_core::{Generation, KeyringId};

    const SUITE: Suite = Suite::Aes256Gcm;

    fn header(form: Form) -> Header {
        let Form { suite, layout, place } = form;
        let (file_id, keyring_id, generation) = ([1; 16], KeyringId([2; 16]), Generation(1));
        let (key_number, stage, samples) = (1, Stage::Settled, 0);
        Header { suite, layout, place, file_id, keyring_id, generation, key_number, stage, samples }
    }

    #[test]
    fn a_file_fits_where_it_was_made_and_nowhere_else() {
        let paths = [
            "base/5/16384",
            "base/5/16385",
            "base/6/16384",
            "base/5/pg_filenode.map",
            "pg_xact/0000",
            "pg_subtrans/0000",
            "pg_wal/000000010000000000000001",
            "pg_stat/pgstat.stat",
        ];
        for made in paths {
            let (class, place) = locate(made.as_bytes());
            let header = header(class.form(place, SUITE).unwrap());
            for lies in paths {
                let (class, place) = locate(lies.as_bytes());
                let misplaced = class.misplaced(place, SUITE, &header);
                let wanted = (made != lies).then_some(Misplaced::Place(header.place));
                assert_eq!(misplaced, wanted, "{made} at {lies}");
            }
            let (class, place) = locate(b"notes.txt");
            assert_eq!(class.misplaced(place, SUITE, &header), None);
        }
    }

    #[test]
    fn a_file_with_another_suite_or_layout_is_misplaced() {
        let (class, place) = locate(b"base/5/16384");
        let form = class.form(place, SUITE).unwrap();
        let (suite, layout) = (Suite::Aes256Xts, Layout::InPlace);
        let other = header(Form { suite, layout, ..form });
        let wrong = Misplaced::Form(suite, layout);
        assert_eq!(class.misplaced(place, SUITE, &other), Some(wrong));
        assert_eq!(class.misplaced(place, suite, &other), None, "in a cluster with that suite");

        let (class, place) = locate(b"pg_xact/0000");
        let form = class.form(place, SUITE).unwrap();
        let unauthenticated = Form { suite: Suite::Aes256Xts, layout: Layout::InPlace, ..form };
        assert!(class.misplaced(place, SUITE, &header(unauthenticated)).is_some());
        let short = header(Form { suite: Suite::Aes128Gcm, ..form });
        assert!(class.misplaced(place, SUITE, &short).is_some());

        let (class, place) = locate(b"pg_wal/000000010000000000000001");
        let form = class.form(place, SUITE).unwrap();
        let old = header(Form { suite: Suite::Aes128Xts, ..form });
        assert_eq!(class.misplaced(place, SUITE, &old), None, "an archive from before a rekey");
    }

    #[test]
    fn while_the_suite_changes_files_of_both_belong() {
        let suites = Suites::from(Suite::Aes128Xts).changed_to(SUITE);
        let (class, place) = locate(b"base/5/16384");
        for suite in Suite::ALL {
            let header = header(class.form(place, suite).unwrap());
            let belongs = suite == SUITE || suite == Suite::Aes128Xts;
            assert_eq!(class.misplaced(place, suites, &header).is_none(), belongs, "{suite}");
            assert_eq!(class.misplaced(place, SUITE, &header).is_none(), suite == SUITE);
        }
        // Files of other classes have the length of key of either suite, and always tags.
        let (class, place) = locate(b"pg_xact/0000");
        for (suite, belongs) in [(Suite::Aes128Gcm, true), (SUITE, true), (Suite::Aes256Xts, false)]
        {
            let form = Form { suite, ..class.form(place, SUITE).unwrap() };
            assert_eq!(class.misplaced(place, suites, &header(form)).is_none(), belongs, "{suite}");
        }
        let elsewhere = Place::of(b"base/5/1").unwrap();
        let other = header(locate(b"base/5/16384").0.form(elsewhere, SUITE).unwrap());
        assert!(
            locate(b"base/5/16384")
                .0
                .misplaced(locate(b"base/5/16384").1, suites, &other)
                .is_some()
        );
    }

    #[test]
    fn a_file_that_is_not_sealed_has_no_form() {
        let (class, place) = locate(b"postgresql.conf");
        assert_eq!(class.form(place, SUITE), None);
    }
}
