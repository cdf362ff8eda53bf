//! Timestamps as proto3 JSON writes them: RFC 3339 in UTC with as many decimals as needed, in groups of three. Pure.

const SECONDS_PER_DAY: i64 = 86_400;
/// The years that RFC 3339 can write; a hostile file system may claim others.
const EARLIEST: i64 = -62_135_596_800;
const LATEST: i64 = 253_402_300_799;

/// Seconds since the epoch and nanoseconds within the second, as text.
pub(crate) fn text(seconds: i64, nanoseconds: i64) -> String {
    let seconds = seconds.clamp(EARLIEST, LATEST);
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{}Z", fraction(nanoseconds))
}

fn fraction(nanoseconds: i64) -> String {
    match nanoseconds.clamp(0, 999_999_999) {
        0 => String::new(),
        nanoseconds if nanoseconds % 1_000_000 == 0 => format!(".{:03}", nanoseconds / 1_000_000),
        nanoseconds if nanoseconds % 1_000 == 0 => format!(".{:06}", nanoseconds / 1_000),
        nanoseconds => format!(".{nanoseconds:09}"),
    }
}

/// The date of a day since the epoch. Years are counted from March, so that the leap day is the last of its year.
fn civil(day: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    const DAYS_FROM_YEAR_0: i64 = 719_468;
    let day = day + DAYS_FROM_YEAR_0;
    let (era, day_of_era) = (day.div_euclid(DAYS_PER_ERA), day.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(text(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(text(1_709_164_800, 0), "2024-02-29T00:00:00Z");
        assert_eq!(text(-1, 999_999_999), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(text(1_767_225_599, 120_000_000), "2025-12-31T23:59:59.120Z");
        assert_eq!(text(1_767_225_600, 1_000), "2026-01-01T00:00:00.000001Z");
    }

    #[test]
    fn moments_beyond_the_calendar_are_clamped() {
        assert_eq!(text(i64::MAX, 0), "9999-12-31T23:59:59Z");
        assert_eq!(text(i64::MIN, -5), "0001-01-01T00:00:00Z");
    }

    proptest! {
        #[test]
        fn dates_agree_with_http_dates(seconds in 0_i64..253_402_300_799) {
            let moment = UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs());
            let http = httpdate::fmt_http_date(moment);
            let ours = text(seconds, 0);
            prop_assert_eq!(&ours[11..19], &http[17..25]);
            prop_assert_eq!(&ours[0..4], &http[12..16]);
            prop_assert_eq!(&ours[8..10], &http[5..7]);
        }
    }
}
