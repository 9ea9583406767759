"""Functions of dates and times as MySQL's: by the calendar, out of and into text, in time zones.

calendar   weeks, units made of two, dates out of parts, times of day as numbers
formats    patterns of STR_TO_DATE, DATE_FORMAT and TIME_FORMAT
zones      CONVERT_TZ, and the session's time zone
"""
