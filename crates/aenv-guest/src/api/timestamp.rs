//! RFC 3339 timestamps to nanoseconds since the epoch. Total: anything else is `None`.

/// Parses `2026-01-02T03:04:05.678+01:00`.
pub(super) fn parse(text: &str) -> Option<i128> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let days = days_since_epoch(split_numbers(date, '-', [4, 2, 2])?)?;
    let seconds = seconds_of_day(split_numbers(time, ':', [2, 2, 2])?)?;
    let (nanoseconds, zone) = split_fraction(rest)?;
    let seconds = days * 86_400 + seconds - offset_seconds(zone)?;
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds))
}

fn split_numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        *number = digits(parts.next()?, width)?;
    }
    parts.next().is_none().then_some(numbers)
}

fn digits(text: &str, width: usize) -> Option<i64> {
    let is_number = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Days of the proleptic Gregorian calendar, counted in years that begin in March: leap days come last.
fn days_since_epoch([year, month, day]: [i64; 3]) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + day_of_year - 719_468)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Second 60 is a leap second.
fn seconds_of_day([hour, minute, second]: [i64; 3]) -> Option<i64> {
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// Nanoseconds and the rest. More than nine digits are cut, not refused.
fn split_fraction(text: &str) -> Option<(u32, &str)> {
    let Some(fraction) = text.strip_prefix('.') else { return Some((0, text)) };
    let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let kept = &fraction[..length.min(9)];
    let number: u32 = kept.parse().ok()?;
    let scale = 10_u32.pow(9 - u32::try_from(kept.len()).ok()?);
    Some((number * scale, &fraction[length..]))
}

fn offset_seconds(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (sign, clock) = match zone.split_at_checked(1)? {
        ("+", clock) => (1, clock),
        ("-", clock) => (-1, clock),
        _ => return None,
    };
    let (hours, minutes) = clock.split_once(':')?;
    Some(sign * seconds_of_day([digits(hours, 2)?, digits(minutes, 2)?, 0])?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_instants() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2000-02-29T12:00:00Z"), Some(951_825_600_000_000_000));
        assert_eq!(parse("2026-01-02T03:04:05.678901234Z"), Some(1_767_323_045_678_901_234));
        assert_eq!(parse("2026-01-02T03:04:05.5+01:30"), Some(1_767_317_645_500_000_000));
        assert_eq!(parse("1969-12-31T23:59:59Z"), Some(-1_000_000_000));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "now", "2026-13-01T00:00:00Z", "2025-02-29T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in
            ["2026-01-01T00:00:00", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00+1", "2026-01-01T00:00:00Zx"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(?s).{0,40}") {
            parse(&text);
        }

        #[test]
        fn the_next_day_is_a_day_later(year in 1900_i64..2300, month in 1_i64..=12, day in 1_i64..=28) {
            let today = days_since_epoch([year, month, day]).expect("a valid date");
            let tomorrow = match day {
                28 if days_in_month(year, month) == 28 => days_since_epoch([year, month + 1, 1]),
                _ => days_since_epoch([year, month, day + 1]).or_else(|| days_since_epoch([year, month, 28]).map(|d| d + 1)),
            };
            prop_assert_eq!(tomorrow, Some(today + 1));
        }
    }
}
