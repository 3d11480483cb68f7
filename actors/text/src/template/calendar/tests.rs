use super::*;

#[test]
fn days_are_counted_over_leap_years() {
    let day = |now_s| strftime("%F %a %j", now_s);
    assert_eq!(day(0), "1970-01-01 Thu 001");
    assert_eq!(day(951_782_400), "2000-02-29 Tue 060");
    assert_eq!(day(951_868_800), "2000-03-01 Wed 061");
    assert_eq!(day(1_735_603_200), "2024-12-31 Tue 366");
    assert_eq!(day(4_107_542_400), "2100-03-01 Mon 060");
}

#[test]
fn fields_are_padded_unless_asked() {
    let now_s = 1_767_323_045;
    assert_eq!(
        strftime("%d.%m.%y|%-d.%-m|%e|%H:%M:%S", now_s),
        "02.01.26|2.1| 2|03:04:05"
    );
    assert_eq!(strftime("%-H", 0), "0");
    assert_eq!(strftime("%I %p", 12 * 3_600), "12 PM");
    assert_eq!(strftime("%% %Q %", 0), "% %Q %");
}
