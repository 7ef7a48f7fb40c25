# two channels, three steps
@problemName Tiny
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength true
@seriesLength 3
@classLabel true Walking Running
@data
1,2,3:-4,5e-1,6.25:Walking
7,8,9:10,11,12:Running
